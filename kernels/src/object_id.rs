//! New ObjectIds: seconds, five bytes of this process, a counter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
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

const RUNNING: i64 = i64::MIN;
/// The millisecond at which a clock of tests stands still; `RUNNING` where it does not.
static STOPPED_AT: AtomicI64 = AtomicI64::new(RUNNING);
/// How many milliseconds a clock of tests is ahead of the system's.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Make ids by another clock than the system's.
pub fn set_clock(stopped_at: Option<i64>, ahead: i64) {
    STOPPED_AT.store(stopped_at.unwrap_or(RUNNING), Ordering::Relaxed);
    AHEAD.store(ahead, Ordering::Relaxed);
}

/// The seconds that an id made now begins with.
pub fn now_seconds() -> u32 {
    let stopped_at = STOPPED_AT.load(Ordering::Relaxed);
    let now = if stopped_at == RUNNING {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64)
            .saturating_add(AHEAD.load(Ordering::Relaxed))
    } else {
        stopped_at
    };
    now.div_euclid(1000) as u32
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
    use super::{generate, now_seconds, set_clock};

    #[test]
    fn ids_differ_in_their_counter() {
        let (first, second) = (generate(7), generate(7));
        assert_ne!(first, second);
        assert_eq!(first[..9], second[..9]);
        assert_eq!(first[..4], [0, 0, 0, 7]);
    }

    #[test]
    fn another_clock_counts() {
        set_clock(Some(1_999), 0);
        assert_eq!(now_seconds(), 1);
        set_clock(None, 86_400_000);
        let ahead = now_seconds();
        set_clock(None, 0);
        assert!(ahead - now_seconds() > 86_000);
    }
}
