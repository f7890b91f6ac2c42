//! The current bucket of each series of a collection, found for a whole batch at a time.

use crate::bucket::{Bucket, Limits, Refusal};
use crate::bucket_edge::{collated, BucketBuilder, Partition, Run};
use crate::elements::Malformed;
use crate::series_places::{hash_of_meta, ByHash};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A bucket that measurements of its series go to, and what stands for it in Python.
struct Current {
    meta: Option<Box<[u8]>>,
    builder: Py<BucketBuilder>,
    bucket: Py<PyAny>,
    min_ms: i64,
    span_ms: i64,
}

#[pyclass(module = "bucketd.kernels._native")]
#[derive(Default)]
struct OpenSeries {
    /// By the hash of the meta value, those that have it.
    current: ByHash<Vec<Current>>,
    count: usize,
}

impl OpenSeries {
    fn find(&self, hash: u64, meta: Option<&[u8]>) -> Option<&Current> {
        let current = self.current.get(&hash)?;
        current.iter().find(|one| one.meta.as_deref() == meta)
    }
}

/// A run that the current bucket of its series did not take whole: from which position on, and why.
type Left<'py> = (
    Run,
    Option<Bound<'py, PyBytes>>,
    usize,
    Option<&'static str>,
);

type Outcome = Result<(usize, Option<Refusal>, bool), Malformed>;

#[pymethods]
impl OpenSeries {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.count
    }

    fn get(&self, py: Python<'_>, meta: Option<&[u8]>) -> Option<Py<PyAny>> {
        let found = self.find(hash_of_meta(meta), meta)?;
        Some(found.bucket.clone_ref(py))
    }

    fn set(
        &mut self,
        meta: Option<&[u8]>,
        bucket: Py<PyAny>,
        builder: Py<BucketBuilder>,
        min_ms: i64,
        span_ms: i64,
    ) {
        self.remove(meta);
        let current = Current {
            meta: meta.map(Into::into),
            builder,
            bucket,
            min_ms,
            span_ms,
        };
        let same = self.current.entry(hash_of_meta(meta)).or_default();
        same.push(current);
        self.count += 1;
    }

    fn remove(&mut self, meta: Option<&[u8]>) {
        let hash = hash_of_meta(meta);
        let Some(same) = self.current.get_mut(&hash) else {
            return;
        };
        let before = same.len();
        same.retain(|one| one.meta.as_deref() != meta);
        self.count -= before - same.len();
        if same.is_empty() {
            self.current.remove(&hash);
        }
    }

    #[pyo3(signature = (batch, *, span_ms, max_count, effective_max, absolute_max, min_count, large_threshold = 512))]
    #[allow(clippy::too_many_arguments)]
    fn place<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, Partition>,
        span_ms: i64,
        max_count: usize,
        effective_max: usize,
        absolute_max: usize,
        min_count: usize,
        large_threshold: usize,
    ) -> PyResult<(Vec<Py<PyAny>>, Vec<Left<'py>>, usize)> {
        let limits = Limits {
            span_ms,
            max_count,
            effective_max,
            absolute_max,
            min_count,
            large_threshold,
        };
        let shared = &batch.get().shared;
        let mut left: Vec<(usize, usize, Option<Refusal>)> = Vec::new();
        let mut asked = Vec::new();
        let mut builders = Vec::new();
        for (at, series) in shared.batch.series.iter().enumerate() {
            let meta = series.meta.as_deref();
            let first_ms = series.measurements.first().map_or(0, |first| first.time_ms);
            let current = self.find(series.hash, meta).filter(|current| {
                let into = first_ms.checked_sub(current.min_ms);
                into.is_some_and(|into| (0..current.span_ms).contains(&into))
            });
            match current {
                Some(current) => {
                    builders.push(current.builder.bind(py).try_borrow_mut()?);
                    asked.push((at, current));
                }
                None => left.push((at, 0, None)),
            }
        }
        let waited: Vec<bool> = builders
            .iter()
            .map(|builder| !builder.bucket.pending.is_empty())
            .collect();
        let collate = builders
            .first()
            .and_then(|builder| builder.collate.as_ref())
            .map(|collate| collate.clone_ref(py));
        let mut pairs: Vec<(&mut Bucket, usize)> = builders
            .iter_mut()
            .zip(&asked)
            .map(|(builder, (at, _))| (&mut builder.bucket, *at))
            .collect();
        let outcomes = collated(py, collate.as_ref(), |collate| {
            let append = |(bucket, at): &mut (&mut Bucket, usize)| -> Outcome {
                let measurements = shared
                    .batch
                    .series
                    .get(*at)
                    .map(|one| &one.measurements[..]);
                bucket.append(
                    &shared.lot,
                    measurements.unwrap_or_default(),
                    &limits,
                    collate,
                )
            };
            pairs.iter_mut().map(append).collect::<Vec<Outcome>>()
        });
        drop(builders);
        let mut wait = Vec::new();
        let mut kept_open = 0;
        for (((at, current), outcome), waited) in asked.into_iter().zip(outcomes).zip(waited) {
            let (taken, refusal, kept) = outcome?;
            if taken > 0 && !waited {
                wait.push(current.bucket.clone_ref(py));
            }
            if refusal.is_some() {
                left.push((at, taken, refusal));
            }
            kept_open += usize::from(kept);
        }
        let left = left.into_iter().map(|(at, taken, refusal)| {
            let meta = shared
                .batch
                .series
                .get(at)
                .and_then(|one| one.meta.as_deref());
            let meta = meta.map(|meta| PyBytes::new(py, meta));
            let run = Run::new(shared, at);
            (run, meta, taken, refusal.map(Refusal::name))
        });
        Ok((wait, left.collect(), kept_open))
    }
}

/// Add this class to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<OpenSeries>()
}
