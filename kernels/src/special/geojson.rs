//! Geometries as documents hold them: GeoJSON, and pairs of numbers.

use crate::decimal::{self, Decimal};
use crate::elements::{self, elements, find, fixed, kind, Element};
use crate::special::relations::crosses_itself;
use crate::special::vectors::{vector, Polygon, Ring, Vector};

/// Why a value is no geometry, in words for people.
pub type Fault = String;

const STRICT_WINDING: &[u8] = b"urn:x-mongodb:crs:strictwinding:EPSG:4326";
const CRS_NAMES: [&[u8]; 2] = [b"urn:ogc:def:crs:OGC:1.3:CRS84", b"EPSG:4326"];

const KINDS: [&[u8]; 7] = [
    b"Point",
    b"LineString",
    b"Polygon",
    b"MultiPoint",
    b"MultiLineString",
    b"MultiPolygon",
    b"GeometryCollection",
];

/// Points, lines and polygons together.
#[derive(Default)]
pub struct Geometry {
    pub points: Vec<Vector>,
    pub lines: Vec<Vec<Vector>>,
    pub polygons: Vec<Polygon>,
    /// Its inside is to the left, and may be more than a hemisphere.
    pub strict: bool,
}

/// The number that an element holds.
pub fn number(element: Element<'_>) -> Option<f64> {
    match element.kind {
        kind::DOUBLE => Some(f64::from_le_bytes(fixed(element.value).ok()?)),
        kind::INT32 => Some(f64::from(elements::int32(element.value).ok()?)),
        kind::INT64 => Some(i64::from_le_bytes(fixed(element.value).ok()?) as f64),
        kind::DECIMAL128 => match decimal::from_bytes(fixed(element.value).ok()?) {
            Decimal::NotANumber => Some(f64::NAN),
            Decimal::Infinite { negative } => Some(if negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }),
            Decimal::Finite { coefficient: 0, .. } => Some(0.0),
            Decimal::Finite {
                negative,
                coefficient,
                exponent,
            } => {
                let magnitude = decimal::truncated(coefficient, exponent).0;
                Some(if negative { -magnitude } else { magnitude })
            }
        },
        _ => None,
    }
}

/// The items of an array, or the values of an object's fields.
pub fn items<'a>(element: Element<'a>, what: &str) -> Result<Vec<Element<'a>>, Fault> {
    if element.kind != kind::ARRAY && element.kind != kind::OBJECT {
        return Err(format!("{what} must be an array or object"));
    }
    elements(element.value)
        .and_then(Iterator::collect)
        .map_err(|malformed| malformed.0.to_string())
}

fn array_items<'a>(element: Element<'a>, what: &str) -> Result<Vec<Element<'a>>, Fault> {
    if element.kind != kind::ARRAY {
        return Err(format!("{what} coordinates must be an array"));
    }
    items(element, what)
}

fn position(element: Element<'_>) -> Result<(f64, f64), Fault> {
    let found = items(element, "Point")?;
    let (Some(x), Some(y)) = (
        found.first().copied().and_then(number),
        found.get(1).copied().and_then(number),
    ) else {
        return Err("Point must only contain numeric elements".into());
    };
    if !(x.is_finite() && y.is_finite()) {
        return Err("Point coordinates must be finite numbers".into());
    }
    if !((-180.0..=180.0).contains(&x) && (-90.0..=90.0).contains(&y)) {
        return Err(format!(
            "longitude/latitude is out of bounds, lng: {x} lat: {y}"
        ));
    }
    Ok((x, y))
}

fn point(element: Element<'_>) -> Result<Vector, Fault> {
    position(element).map(|(x, y)| vector(x, y))
}

fn line(element: Element<'_>) -> Result<Vec<Vector>, Fault> {
    let found = array_items(element, "GeoJSON")?;
    let mut vertices: Vec<Vector> = Vec::with_capacity(found.len());
    for item in &found {
        let vertex = point(*item)?;
        if vertices.last() != Some(&vertex) {
            vertices.push(vertex);
        }
    }
    if vertices.len() < 2 {
        return Err(format!(
            "GeoJSON LineString must have at least 2 vertices: {}",
            found.len()
        ));
    }
    Ok(vertices)
}

fn ring(element: Element<'_>, left: bool) -> Result<Ring, Fault> {
    let found = array_items(element, "Loop")?;
    let positions = found
        .iter()
        .map(|item| position(*item))
        .collect::<Result<Vec<_>, _>>()?;
    let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
        return Err("Loop must be a non-empty array of coordinates".into());
    };
    if first != last {
        return Err("Loop is not closed".into());
    }
    let mut vertices: Vec<Vector> = Vec::with_capacity(positions.len());
    for &(x, y) in &positions[..positions.len() - 1] {
        let vertex = vector(x, y);
        if vertices.last() != Some(&vertex) {
            vertices.push(vertex);
        }
    }
    if vertices.len() < 3 {
        return Err("Loop must have at least 3 different vertices".into());
    }
    let mut sorted = vertices.clone();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("Loop is not valid: Duplicate vertices".into());
    }
    let ring = Ring::new(vertices, left);
    if crosses_itself(&ring) {
        return Err("Loop is not valid: Edges cross".into());
    }
    Ok(ring)
}

fn polygon(element: Element<'_>, strict: bool) -> Result<Polygon, Fault> {
    let mut rings = array_items(element, "Polygon")?.into_iter();
    let Some(first) = rings.next() else {
        return Err("Polygon has no loops".into());
    };
    let outer = ring(first, strict)?;
    let mut holes = Vec::new();
    for (at, item) in rings.enumerate() {
        if strict {
            return Err("Only one simple loop is allowed in a big polygon".into());
        }
        let hole = ring(item, false)?;
        if !Polygon::can_have_hole(&outer, &hole) {
            return Err(format!(
                "Secondary loops not contained by first exterior loop - secondary loops must be holes: {}",
                at + 1
            ));
        }
        holes.push(hole);
    }
    Ok(Polygon { outer, holes })
}

fn text<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let element = find(object, name).ok()??;
    if element.kind != kind::STRING {
        return None;
    }
    elements::string(element.value).ok()
}

/// Whether the object asks for polygons whose inside is to the left.
fn strict_winding(object: &[u8], kind_name: &[u8]) -> Result<bool, Fault> {
    let Some(crs) = find(object, b"crs").map_err(|malformed| malformed.0.to_string())? else {
        return Ok(false);
    };
    if crs.kind != kind::OBJECT {
        return Err("GeoJSON CRS must be an object".into());
    }
    if text(crs.value, b"type") != Some(b"name") {
        return Err("GeoJSON CRS must have field \"type\": \"name\"".into());
    }
    let properties = find(crs.value, b"properties").ok().flatten();
    let name = properties
        .filter(|found| found.kind == kind::OBJECT)
        .and_then(|found| text(found.value, b"name"))
        .ok_or("CRS must have field \"properties\" which is an object with a string \"name\"")?;
    if name == STRICT_WINDING {
        if kind_name != b"Polygon" {
            return Err("Strict winding order CRS is only supported by polygon".into());
        }
        return Ok(true);
    }
    if CRS_NAMES.contains(&name) {
        return Ok(false);
    }
    Err(format!(
        "Unknown CRS name: {}",
        String::from_utf8_lossy(name)
    ))
}

fn geojson(object: &[u8], kind_name: &[u8], geometry: &mut Geometry) -> Result<(), Fault> {
    let strict = strict_winding(object, kind_name)?;
    if kind_name == b"GeometryCollection" {
        let members = find(object, b"geometries")
            .ok()
            .flatten()
            .ok_or("GeometryCollection geometries must be a non-empty array")?;
        let members = array_items(members, "GeometryCollection")?;
        if members.is_empty() {
            return Err("GeometryCollection geometries must be a non-empty array".into());
        }
        for member in members {
            let inner = (member.kind == kind::OBJECT)
                .then(|| text(member.value, b"type"))
                .flatten()
                .filter(|inner| *inner != b"GeometryCollection")
                .ok_or("Element of GeometryCollection is not a geometry")?;
            geojson(member.value, inner, geometry)?;
        }
        return Ok(());
    }
    let Some(coordinates) =
        find(object, b"coordinates").map_err(|malformed| malformed.0.to_string())?
    else {
        return Err("GeoJSON coordinates must be an array or object".into());
    };
    let listed = |what: &str| -> Result<Vec<Element<'_>>, Fault> {
        let found = array_items(coordinates, what)?;
        if found.is_empty() {
            return Err(format!("{what} coordinates must have at least 1 element"));
        }
        Ok(found)
    };
    match kind_name {
        b"Point" => geometry.points.push(point(coordinates)?),
        b"MultiPoint" => {
            for item in listed("MultiPoint")? {
                geometry.points.push(point(item)?);
            }
        }
        b"LineString" => geometry.lines.push(line(coordinates)?),
        b"MultiLineString" => {
            for item in listed("MultiLineString")? {
                geometry.lines.push(line(item)?);
            }
        }
        b"Polygon" => {
            geometry.strict |= strict;
            geometry.polygons.push(polygon(coordinates, strict)?);
        }
        b"MultiPolygon" => {
            for item in listed("MultiPolygon")? {
                geometry.polygons.push(polygon(item, false)?);
            }
        }
        _ => {
            return Err(format!(
                "unknown GeoJSON type: {}",
                String::from_utf8_lossy(kind_name)
            ));
        }
    }
    Ok(())
}

/// The geometry of an object or array.
pub fn geometry(element: Element<'_>) -> Result<Geometry, Fault> {
    let mut geometry = Geometry::default();
    if element.kind == kind::OBJECT {
        let kind_name = text(element.value, b"type");
        // Whatever else an object calls its type, it may be a pair of numbers.
        if let Some(kind_name) = kind_name.filter(|name| KINDS.contains(name)) {
            geojson(element.value, kind_name, &mut geometry)?;
            return Ok(geometry);
        }
    }
    geometry.points.push(point(element)?);
    Ok(geometry)
}
