"""The limits that clients are told, and those that hold within."""

from typing import Final

DOCUMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""`maxBsonObjectSize`: a document of a user."""

DOCUMENT_BYTES_MAX_INTERNAL: Final = DOCUMENT_BYTES_MAX + 16 * 1024
"""A command or a reply that wraps a document of full size."""

MESSAGE_BYTES_MAX: Final = 48_000_000
"""`maxMessageSizeBytes`."""

WRITE_BATCH_MAX: Final = 100_000
"""`maxWriteBatchSize`: statements of one insert, update, delete or bulkWrite."""

BSON_DEPTH_MAX: Final = 200
"""Nesting of a document."""

BATCH_BYTES_MAX: Final = DOCUMENT_BYTES_MAX
"""A batch of a cursor stops before it; a single document always fits."""

FIRST_BATCH_DOCUMENTS: Final = 101
"""Documents of a first batch where the client does not say."""

MIN_WIRE_VERSION: Final = 0
MAX_WIRE_VERSION: Final = 27
"""What MongoDB 8.2 speaks."""

SERVER_VERSION: Final = "8.2.4"
SERVER_VERSION_ARRAY: Final = (8, 2, 4, 0)
FEATURE_COMPATIBILITY_VERSION: Final = "8.2"

SESSION_TIMEOUT_MINUTES: Final = 30
"""`logicalSessionTimeoutMinutes`."""
