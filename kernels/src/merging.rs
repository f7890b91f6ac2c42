//! Several buckets of one series as one: their measurements are appended as an insert would append them.

use crate::bucket::{Bucket, Limits};
use crate::bucket_check::problems;
use crate::bucket_rows::BucketRows;
use crate::elements::{elements, find};
use crate::keystring::Collate;
use crate::lot::Lot;
use crate::pack::BucketSource;
use crate::partition::{partition, Reading};
use crate::stored::{bad_bucket, Stored};
use crate::unpack::{check_size, summary, Failure, Wanted};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// What a collection says of its buckets.
pub struct Form<'a> {
    pub time_field: &'a [u8],
    pub meta_field: Option<&'a [u8]>,
    pub rounding_ms: i64,
    /// Schema version of the result, where its measurements are in the order of time.
    pub version: i32,
    pub limits: Limits,
    pub collate: Option<Collate<'a>>,
}

/// One bucket that holds the measurements of all, under the id of the first, whose times begin before those of the others. None
/// where one bucket would not have taken them: types differ, there are too many, they are too large or too far apart.
pub fn merge(buckets: &[&[u8]], form: &Form<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(first) = buckets.first() else {
        return Ok(None);
    };
    let id = Stored::parse(first)?.id;
    let meta = meta_of(first)?;
    let min_ms = summary(first, form.time_field)?.min_ms;
    let mut rows = Vec::new();
    let mut before = Sum::default();
    for bucket in buckets {
        let stored = Stored::parse(bucket)?;
        if stored.closed == Some(true) || meta_of(bucket)? != meta {
            return Ok(None);
        }
        before.add(&open(bucket, form)?, &mut rows)?;
        check_size(rows.len())?;
    }
    let reading = Reading {
        time_field: form.time_field,
        meta_field: form.meta_field,
        bytes_max: usize::MAX,
        stop: usize::MAX,
    };
    let (batch, fields) = partition(&rows, &reading)?;
    let ([series], []) = (batch.series.as_slice(), batch.errors.as_slice()) else {
        return Ok(None);
    };
    // A meta that was written in another order of its fields is somebody's own.
    if series.meta != meta {
        return Ok(None);
    }
    let mut bucket = Bucket::new(id, form.time_field, meta.as_deref(), min_ms, form.version);
    let lot = Arc::new(Lot::new(Box::new(rows), fields));
    let (_, refusal, _) = bucket.append(&lot, &series.measurements, &form.limits, form.collate)?;
    if refusal.is_some() {
        return Ok(None);
    }
    let merged = bucket.document()?;
    // Nothing goes, and nothing comes, that was not there.
    let mut after = Sum::default();
    after.add(&open(&merged, form)?, &mut Vec::new())?;
    let wrong = problems(
        &merged,
        form.time_field,
        form.meta_field,
        form.limits.span_ms,
        form.rounding_ms,
        form.collate,
    );
    Ok((after == before && wrong.is_empty()).then_some(merged))
}

fn open(bucket: &[u8], form: &Form<'_>) -> Result<BucketRows, Failure> {
    let all = Wanted::Exclude(&[]);
    BucketRows::open(
        BucketSource::Stored(bucket),
        form.time_field,
        form.meta_field,
        all,
    )
}

/// Type byte and value of the meta.
fn meta_of(bucket: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    Ok(find(bucket, b"meta")?.map(|meta| [&[meta.kind], meta.value].concat()))
}

/// What tells some measurements from others, in whatever order they and their fields are.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    rows: usize,
    bytes: usize,
    prints: u64,
}

impl Sum {
    /// Takes the measurements of a bucket into the sum, and appends them to `out`.
    fn add(&mut self, rows: &BucketRows, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut one = Vec::new();
        for row in 0..rows.len() {
            let begun = out.len();
            rows.write(row, out);
            let written = out.get(begun..).unwrap_or_default();
            let mut print = 0_u64;
            for element in elements(written)? {
                let element = element?;
                one.clear();
                one.push(element.kind);
                one.extend_from_slice(element.name);
                one.push(0);
                one.extend_from_slice(element.value);
                print = print.wrapping_add(xxh3_64(&one));
            }
            self.rows += 1;
            self.bytes += written.len();
            self.prints = self.prints.wrapping_add(xxh3_64(&print.to_le_bytes()));
            if self.bytes > u32::MAX as usize {
                return Err(bad_bucket("the buckets are too large"));
            }
        }
        Ok(())
    }
}
