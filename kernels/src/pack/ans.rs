//! Symbols in as many bits as they carry information: range asymmetric numeral systems (rANS), by fixed frequencies.
//!
//! A stream is a state of 32 bits, and words of 16 bits that flow into it. It ends where it began, which tells whether its
//! bytes are those that were written.

use super::bytes::{Reader, Torn, Writer};

const BITS: u32 = 11;
const TOTAL: u32 = 1 << BITS;
/// The state is never below it between two symbols.
const LOW: u32 = 1 << 16;

/// How often each symbol is met, of 2048; 0 for those that never are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frequencies([u16; 256]);

impl Frequencies {
    /// Scales counts so that every symbol that occurs keeps at least one part. None where nothing is counted.
    pub fn of(counts: &[u64; 256]) -> Option<Self> {
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let mut scaled = [0_u16; 256];
        let mut sum = 0;
        for (scaled, count) in scaled.iter_mut().zip(counts) {
            if *count > 0 {
                let share = (*count as f64 / total as f64 * f64::from(TOTAL)).round() as u16;
                *scaled = share.clamp(1, TOTAL as u16);
                sum += u32::from(*scaled);
            }
        }
        // What rounding took or gave too much is evened out where it weighs least.
        while sum != TOTAL {
            let most = scaled.iter_mut().max()?;
            if sum < TOTAL {
                *most += (TOTAL - sum) as u16;
                sum = TOTAL;
            } else {
                let taken = (sum - TOTAL).min(u32::from(*most / 2)).max(1);
                *most -= taken as u16;
                sum -= taken;
            }
        }
        Some(Self(scaled))
    }

    /// About how many bits the counted symbols take.
    pub fn cost_bits(&self, counts: &[u64; 256]) -> f64 {
        let whole = f64::from(BITS);
        counts
            .iter()
            .zip(&self.0)
            .filter(|(count, _)| **count > 0)
            .map(|(count, share)| *count as f64 * (whole - f64::from(*share).log2()))
            .sum()
    }

    pub fn write(&self, out: &mut Writer) {
        let met: Vec<(u8, u16)> = (0..=255_u8)
            .zip(self.0)
            .filter(|(_, share)| *share > 0)
            .collect();
        out.number(met.len() as u64);
        let mut before = 0;
        for (symbol, share) in met {
            out.number(u64::from(symbol - before));
            out.number(u64::from(share));
            before = symbol;
        }
    }

    pub fn read(input: &mut Reader<'_>) -> Result<Self, Torn> {
        let met = input.number()?;
        let mut shares = [0_u16; 256];
        let (mut symbol, mut sum) = (0, 0);
        for _ in 0..met {
            symbol += input.number()?;
            let share = input.number()?;
            let place = shares.get_mut(symbol as usize).ok_or(Torn)?;
            if *place != 0 || share == 0 || share > u64::from(TOTAL) {
                return Err(Torn);
            }
            *place = share as u16;
            sum += share as u32;
        }
        if sum == TOTAL {
            Ok(Self(shares))
        } else {
            Err(Torn)
        }
    }

    /// What decoding looks up.
    pub fn table(&self) -> Table {
        let mut slots = Box::new([0; TOTAL as usize]);
        let mut rest = slots.iter_mut();
        for (symbol, share) in (0_u32..).zip(self.0) {
            for within in 0..u32::from(share) {
                if let Some(slot) = rest.next() {
                    *slot = symbol | u32::from(share) << 8 | within << 20;
                }
            }
        }
        Table { slots }
    }

    fn starts(&self) -> [u32; 256] {
        let mut sum = 0;
        self.0.map(|share| {
            let start = sum;
            sum += u32::from(share);
            start
        })
    }
}

/// For each remainder of the state its symbol (8 bits), the symbol's share (12) and where within the share it lies (11).
#[derive(Debug)]
pub struct Table {
    slots: Box<[u32; TOTAL as usize]>,
}

/// Appends a stream of symbols, of which each has a share in the frequencies that go with it.
pub fn encode<'a>(
    symbols: impl DoubleEndedIterator<Item = (u8, &'a Coder)>,
    words: &mut Vec<u16>,
    out: &mut Vec<u8>,
) {
    words.clear();
    let mut state = LOW;
    // The last symbol goes in first, since it comes out last.
    for (symbol, coder) in symbols.rev() {
        let share = u32::from(coder.frequencies.0[usize::from(symbol)]);
        if u64::from(state) >= u64::from(share) << (32 - BITS) {
            words.push(state as u16);
            state >>= 16;
        }
        let start = coder.starts[usize::from(symbol)];
        state = ((state / share) << BITS) + state % share + start;
    }
    // One symbol alone takes nothing.
    if state == LOW && words.is_empty() {
        return;
    }
    out.extend_from_slice(&state.to_le_bytes());
    out.extend(words.iter().rev().flat_map(|word| word.to_le_bytes()));
}

/// Frequencies as encoding needs them.
pub struct Coder {
    frequencies: Frequencies,
    starts: [u32; 256],
}

impl Coder {
    pub fn new(frequencies: Frequencies) -> Self {
        let starts = frequencies.starts();
        Self {
            frequencies,
            starts,
        }
    }

    pub fn frequencies(&self) -> &Frequencies {
        &self.frequencies
    }
}

/// Takes the symbols of a stream out of it again.
pub struct Decoder<'a> {
    state: u32,
    words: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub fn new(stream: &'a [u8]) -> Result<Self, Torn> {
        if stream.is_empty() {
            return Ok(Self {
                state: LOW,
                words: stream,
                at: 0,
            });
        }
        let (state, words) = stream.split_first_chunk().ok_or(Torn)?;
        Ok(Self {
            state: u32::from_le_bytes(*state),
            words,
            at: 0,
        })
    }

    #[inline]
    pub fn symbol(&mut self, table: &Table) -> u8 {
        let slot = table.slots[(self.state & (TOTAL - 1)) as usize];
        self.state = (slot >> 8 & 0xfff)
            .wrapping_mul(self.state >> BITS)
            .wrapping_add(slot >> 20);
        // Without a branch, which nothing could foretell.
        let word = match self.words.get(self.at..self.at + 2) {
            Some(word) => u32::from(word[0]) | u32::from(word[1]) << 8,
            None => 0,
        };
        let low = self.state < LOW;
        let fed = self.state << 16 | word;
        self.state = if low { fed } else { self.state };
        self.at += 2 * usize::from(low);
        slot as u8
    }

    /// Whether the stream has been read to its end, and is what was written.
    pub fn finish(&self) -> Result<(), Torn> {
        if self.state == LOW && self.at == self.words.len() {
            Ok(())
        } else {
            Err(Torn)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(symbols: &[u8]) -> [u64; 256] {
        let mut counts = [0; 256];
        symbols
            .iter()
            .for_each(|symbol| counts[usize::from(*symbol)] += 1);
        counts
    }

    fn there_and_back(symbols: &[u8]) -> usize {
        let counts = counted(symbols);
        let frequencies = Frequencies::of(&counts).expect("some symbols");
        let mut written = Writer::default();
        frequencies.write(&mut written);
        let read = Frequencies::read(&mut Reader::new(&written.bytes)).expect("well formed");
        assert_eq!(read, frequencies);
        let coder = Coder::new(frequencies);
        let (mut words, mut out) = (Vec::new(), Vec::new());
        let pairs = symbols.iter().map(|symbol| (*symbol, &coder));
        encode(pairs, &mut words, &mut out);
        let table = read.table();
        let mut decoder = Decoder::new(&out).expect("a state");
        let found: Vec<u8> = symbols.iter().map(|_| decoder.symbol(&table)).collect();
        assert_eq!(found, symbols);
        assert_eq!(decoder.finish(), Ok(()));
        out.len()
    }

    #[test]
    fn symbols_come_back() {
        there_and_back(&[7]);
        there_and_back(&[0; 1000]);
        there_and_back(&(0..=255).collect::<Vec<_>>());
        let skewed: Vec<u8> = (0..10_000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .map(|value| value.leading_zeros() as u8)
            .collect();
        // Half of them are 0, a quarter 1 and so on: two bits each.
        let length = there_and_back(&skewed);
        assert!((2400..2600).contains(&length), "{length}");
        assert_eq!(there_and_back(&[3; 5000]), 0);
    }

    #[test]
    fn rare_symbols_keep_a_share() {
        let mut symbols: Vec<u8> = (0..=255).collect();
        symbols.resize(1_000_000, 9);
        there_and_back(&symbols);
    }

    #[test]
    fn a_torn_stream_is_noticed() {
        let symbols: Vec<u8> = (0..200).map(|at| at % 5).collect();
        let coder = Coder::new(Frequencies::of(&counted(&symbols)).expect("some symbols"));
        let (mut words, mut out) = (Vec::new(), Vec::new());
        let pairs = symbols.iter().map(|symbol| (*symbol, &coder));
        encode(pairs, &mut words, &mut out);
        let table = coder.frequencies.table();
        let ends_well = |bytes: &[u8]| {
            let mut decoder = Decoder::new(bytes)?;
            symbols.iter().for_each(|_| {
                decoder.symbol(&table);
            });
            decoder.finish()
        };
        assert_eq!(ends_well(&out), Ok(()));
        assert_eq!(ends_well(&out[..out.len() - 2]), Err(Torn));
        assert_eq!(ends_well(&[&out[..], &[1, 2]].concat()), Err(Torn));
        assert_eq!(ends_well(&[]), Err(Torn));
    }
}
