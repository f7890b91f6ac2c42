//! Keys of the indexes that keep something else than the values of their paths: wildcard, geospatial and text indexes.

mod cells;
pub mod edge;
mod flat;
mod geo_edge;
mod geojson;
mod language;
mod paths;
mod relations;
mod sphere_keys;
mod text_edge;
mod text_keys;
mod text_search;
mod vectors;
mod wildcard;
