//! New ObjectIds: seconds, five bytes of this process, a counter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

struct Process {
    unique: [u8; 5],
    counter: AtomicU32,
}

fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let [a, b, c, d, e, rest @ ..] = random().to_le_bytes();
        let [f, g, h] = rest;
        Process {
            unique: [a, b, c, d, e],
            counter: AtomicU32::new(u32::from_le_bytes([f, g, h, 0])),
        }
    })
}

/// The standard library seeds each `RandomState` from the operating system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The seconds that an id made now begins with.
pub fn now_seconds() -> u32 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as u32)
}

/// A new id that begins with these seconds.
pub fn generate(seconds: u32) -> [u8; 12] {
    let process = process();
    let count = process.counter.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 12];
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    id[4..9].copy_from_slice(&process.unique);
    id[9..].copy_from_slice(&count.to_be_bytes()[1..]);
    id
}

#[cfg(test)]
mod tests {
    use super::generate;

    #[test]
    fn ids_differ_in_their_counter() {
        let (first, second) = (generate(7), generate(7));
        assert_ne!(first, second);
        assert_eq!(first[..9], second[..9]);
        assert_eq!(first[..4], [0, 0, 0, 7]);
    }
}
