"""SOCKETS TO REQUESTS: accepts, frames, dispatches, answers, stops in good order."""
