//! Which series the meta values of a batch belong to.

use crate::elements::{elements, kind, Malformed};
use crate::partition::Series;
use crate::validate::{check_value, DEPTH_MAX};
use crate::writer::{begin, end, header};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Type and value of a meta field as it was sent.
pub type Sent<'a> = Option<(u8, &'a [u8])>;

/// So many measurements of a series are likely in a batch.
const RUN_LIKELY: usize = 8;

/// Takes keys that are hashes as they are.
#[derive(Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map by hashes.
pub type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;

/// A meta value as it was sent.
struct Met<'a> {
    sent: Sent<'a>,
    place: usize,
    /// What came behind it the last time.
    next: usize,
}

/// Which series a meta value belongs to.
#[derive(Default)]
pub struct Places<'a> {
    /// Each value as sent, so that one is checked and normalised only when it is met for the first time.
    met: Vec<Met<'a>>,
    by_sent: ByHash<usize>,
    /// By the hash of the normalised value, those that have it.
    by_meta: ByHash<Vec<usize>>,
    latest: usize,
}

impl<'a> Places<'a> {
    /// The place of the value's series among `series`, to which a new one is added.
    pub fn of(&mut self, sent: Sent<'a>, series: &mut Vec<Series>) -> Result<usize, Malformed> {
        // Clients often send a series at a time, or all of them in turn.
        if let Some(latest) = self.met.get(self.latest) {
            if latest.sent == sent {
                return Ok(latest.place);
            }
            if let Some(next) = self.met.get(latest.next).filter(|next| next.sent == sent) {
                self.latest = latest.next;
                return Ok(next.place);
            }
        }
        let hash = hash_of(sent);
        let known = self.by_sent.get(&hash).copied();
        let known = known.filter(|at| self.met.get(*at).is_some_and(|met| met.sent == sent));
        let at = match known {
            Some(at) => at,
            None => {
                if let Some((type_byte, value)) = sent {
                    check_value(type_byte, value, DEPTH_MAX - 1)?;
                }
                let place = self.place_of(sent.map(normalised), series);
                self.met.push(Met {
                    sent,
                    place,
                    next: 0,
                });
                self.by_sent.insert(hash, self.met.len() - 1);
                self.met.len() - 1
            }
        };
        if let Some(latest) = self.met.get_mut(self.latest) {
            latest.next = at;
        }
        self.latest = at;
        Ok(self.met.get(at).map_or(0, |met| met.place))
    }

    /// Where the series of a normalised value stands, a new one if there was none.
    fn place_of(&mut self, meta: Option<Vec<u8>>, series: &mut Vec<Series>) -> usize {
        let hash = hash_of_meta(meta.as_deref());
        let places = self.by_meta.entry(hash).or_default();
        let known = places
            .iter()
            .find(|place| series.get(**place).is_some_and(|known| known.meta == meta));
        if let Some(place) = known {
            return *place;
        }
        places.push(series.len());
        series.push(Series {
            meta,
            hash,
            measurements: Vec::with_capacity(RUN_LIKELY),
        });
        series.len() - 1
    }
}

/// The hash of a normalised value.
pub fn hash_of_meta(meta: Option<&[u8]>) -> u64 {
    hash_of(meta.map(|meta| (0, meta)))
}

/// Nobody outside can know which values have equal hashes: the seed is another one in each process.
fn hash_of(value: Sent<'_>) -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| RandomState::new().hash_one(0));
    value.map_or(0, |(type_byte, value)| {
        xxh3_64_with_seed(value, seed ^ u64::from(type_byte))
    })
}

/// Type byte and value, the fields of every object in it sorted by name.
fn normalised((type_byte, value): (u8, &[u8])) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 1);
    out.push(type_byte);
    if normalise(type_byte, value, &mut out).is_err() {
        // Validated before, so this is not met; the value as sent is a series of its own.
        out.truncate(1);
        out.extend_from_slice(value);
    }
    out
}

fn normalise(type_byte: u8, value: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    if type_byte != kind::OBJECT && type_byte != kind::ARRAY {
        out.extend_from_slice(value);
        return Ok(());
    }
    let mut fields = elements(value)?.collect::<Result<Vec<_>, _>>()?;
    if type_byte == kind::OBJECT {
        fields.sort_by(|one, other| one.name.cmp(other.name));
    }
    let begun = begin(out);
    for field in fields {
        header(out, field.kind, field.name);
        normalise(field.kind, field.value, out)?;
    }
    end(out, begun);
    Ok(())
}
