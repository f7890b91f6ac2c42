//! Keys of the indexes that keep something else than the values of their paths: wildcard, geospatial and text indexes.

pub mod edge;
pub mod paths;
pub mod wildcard;
