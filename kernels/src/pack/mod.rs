//! Packs: closed buckets that lie beside each other, kept column by column.
//!
//! A bucket's document comes back from its pack byte by byte. What a pack keeps of it are its head (the document without
//! `data`), and of each column either its bytes or, where they can be made again from its values, the differences of these
//! in as many bits as they carry information. Columns are read without the documents.

mod ans;
mod bytes;
pub mod edge;
mod form;
mod make;
mod read;
mod totals;

use crate::unpack::{Failure, INVALID_COLUMN};
pub use bytes::Torn;
pub use form::{id_of, Kind};
pub use read::{Pack, PackedColumn};
pub use totals::Totals;

/// A bucket by itself or in a pack.
#[derive(Debug, Clone, Copy)]
pub enum BucketSource<'a> {
    Stored(&'a [u8]),
    Packed {
        /// The document without `data`.
        head: &'a [u8],
        pack: &'a Pack,
        number: usize,
    },
}

impl<'a> BucketSource<'a> {
    /// How many measurements it has, where that is known without looking; else none.
    pub fn expected(&self) -> usize {
        match self {
            Self::Stored(_) => 0,
            Self::Packed { pack, number, .. } => pack.count(*number),
        }
    }

    /// A document that tells everything but the columns.
    pub fn head(&self) -> &'a [u8] {
        match self {
            Self::Stored(head) | Self::Packed { head, .. } => head,
        }
    }
}

impl From<Torn> for Failure {
    fn from(_: Torn) -> Self {
        Self::new(INVALID_COLUMN, "a pack of buckets cannot be read")
    }
}
