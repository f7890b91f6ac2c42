//! How geometries lie to regions of the sphere: within them, or meeting them.

use crate::special::geojson::Geometry;
use crate::special::vectors::{
    angle, cross_properly, meet, normalized, on_arc, same, sum, Polygon, Ring, Vector,
};

type Arc = (Vector, Vector);

const SLACK: f64 = 1e-9;

/// What is asked about.
pub enum Area {
    Geometry(Geometry),
    Cap { centre: Vector, radius: f64 },
}

/// A region with a circle around it, by which most of what lies elsewhere is told at once.
pub struct Region {
    area: Area,
    around: Option<(Vector, f64)>,
}

impl Region {
    pub fn new(area: Area) -> Self {
        let around = match &area {
            Area::Cap { .. } => None,
            Area::Geometry(geometry) => circle_around(geometry),
        };
        Region { area, around }
    }

    /// Whether all of a geometry lies in the region.
    pub fn holds(&self, geometry: &Geometry) -> bool {
        if self.is_far_from(geometry) {
            return false;
        }
        match &self.area {
            Area::Cap { centre, radius } => {
                let inside = |point: Vector| angle(*centre, point) <= radius + 1e-15;
                geometry.points.iter().all(|&point| inside(point))
                    && geometry.lines.iter().flatten().all(|&point| inside(point))
                    && geometry
                        .polygons
                        .iter()
                        .all(|polygon| polygon.outer.vertices.iter().all(|&point| inside(point)))
            }
            Area::Geometry(region) => {
                let areas = &region.polygons;
                geometry
                    .points
                    .iter()
                    .all(|&point| areas.iter().any(|area| area.covers(point)))
                    && geometry
                        .lines
                        .iter()
                        .all(|line| areas.iter().any(|area| holds_arcs(area, &arcs_of(line))))
                    && geometry
                        .polygons
                        .iter()
                        .all(|polygon| areas.iter().any(|area| holds_polygon(area, polygon)))
            }
        }
    }

    /// Whether a geometry and the region have a point in common; a circle has to hold all of it.
    pub fn meets(&self, geometry: &Geometry) -> bool {
        match &self.area {
            Area::Cap { .. } => self.holds(geometry),
            Area::Geometry(region) => {
                !self.is_far_from(geometry)
                    && (reaches(geometry, region) || reaches(region, geometry))
            }
        }
    }

    fn is_far_from(&self, geometry: &Geometry) -> bool {
        let (Some((centre, reach)), Some((other, other_reach))) =
            (self.around, circle_around(geometry))
        else {
            return false;
        };
        angle(centre, other) > reach + other_reach + SLACK
    }
}

/// A circle that holds a geometry; none where it is too large for one to be sure of.
fn circle_around(geometry: &Geometry) -> Option<(Vector, f64)> {
    if geometry.strict {
        return None;
    }
    let vertices = || {
        geometry
            .points
            .iter()
            .chain(geometry.lines.iter().flatten())
            .chain(
                geometry
                    .polygons
                    .iter()
                    .flat_map(|polygon| polygon.outer.vertices.iter()),
            )
            .copied()
    };
    let centre = normalized(vertices().fold([0.0; 3], sum));
    let reach = vertices()
        .map(|vertex| angle(centre, vertex))
        .fold(0.0, f64::max);
    // Only in a circle of less than a hemisphere do arcs and insides stay where their corners are.
    (reach < 1.5 && centre != [0.0; 3]).then_some((centre, reach))
}

fn arcs_of(line: &[Vector]) -> Vec<Arc> {
    line.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn holds_arcs(area: &Polygon, arcs: &[Arc]) -> bool {
    arcs.iter().all(|&(a, b)| area.covers(a) && area.covers(b))
        && !arcs
            .iter()
            .any(|&(a, b)| area.arcs().any(|(c, d)| cross_properly(a, b, c, d)))
}

fn holds_polygon(area: &Polygon, polygon: &Polygon) -> bool {
    let sides: Vec<Arc> = polygon.outer.arcs().collect();
    // A hole of the area inside the polygon would be a part of the polygon that is outside.
    holds_arcs(area, &sides)
        && !area.holes.iter().any(|hole| {
            hole.vertices
                .first()
                .is_some_and(|&corner| inside(polygon, corner))
        })
}

/// Whether a point is in a polygon and on no side.
fn inside(polygon: &Polygon, point: Vector) -> bool {
    !polygon.on_edge(point) && polygon.contains(point)
}

fn reaches(one: &Geometry, other: &Geometry) -> bool {
    let other_arcs: Vec<Arc> = other.lines.iter().flat_map(|line| arcs_of(line)).collect();
    let point_met = one.points.iter().any(|&point| {
        other.points.iter().any(|&place| same(point, place))
            || other_arcs.iter().any(|&(a, b)| on_arc(point, a, b))
            || other.polygons.iter().any(|polygon| polygon.covers(point))
    });
    if point_met {
        return true;
    }
    for line in &one.lines {
        let arcs = arcs_of(line);
        let crossing = |a: Vector, b: Vector| other_arcs.iter().any(|&(c, d)| meet(a, b, c, d));
        if arcs.iter().any(|&(a, b)| crossing(a, b)) {
            return true;
        }
        for polygon in &other.polygons {
            if arcs.iter().any(|&(a, _)| polygon.covers(a))
                || arcs
                    .iter()
                    .any(|&(a, b)| polygon.arcs().any(|(c, d)| meet(a, b, c, d)))
            {
                return true;
            }
        }
    }
    one.polygons.iter().any(|polygon| {
        other
            .polygons
            .iter()
            .any(|candidate| overlap(polygon, candidate))
    })
}

/// Whether two polygons share more than points of their sides.
fn overlap(one: &Polygon, other: &Polygon) -> bool {
    witnesses(other).any(|point| inside(one, point))
        || witnesses(one).any(|point| inside(other, point))
        || one
            .arcs()
            .any(|(a, b)| other.arcs().any(|(c, d)| cross_properly(a, b, c, d)))
}

/// Points that tell where a polygon is: its corners, and its middle.
fn witnesses(polygon: &Polygon) -> impl Iterator<Item = Vector> + '_ {
    let corners = &polygon.outer.vertices;
    let middle = normalized(corners.iter().copied().fold([0.0; 3], sum));
    corners
        .iter()
        .copied()
        .chain((middle != [0.0; 3]).then_some(middle))
}

/// Whether sides of a ring that are no neighbours meet: those that share a stretch of an axis are compared.
pub fn crosses_itself(ring: &Ring) -> bool {
    struct Side {
        at: usize,
        arc: Arc,
        low: Vector,
        high: Vector,
    }
    let mut sides: Vec<Side> = ring
        .arcs()
        .enumerate()
        .map(|(at, (a, b))| {
            // An arc rises above its chord by less than this.
            let bulge = angle(a, b).powi(2) / 4.0 + SLACK;
            let mut side = Side {
                at,
                arc: (a, b),
                low: a,
                high: a,
            };
            for axis in 0..3 {
                side.low[axis] = a[axis].min(b[axis]) - bulge;
                side.high[axis] = a[axis].max(b[axis]) + bulge;
            }
            side
        })
        .collect();
    let last = sides.len().saturating_sub(1);
    sides.sort_by(|one, other| one.low[0].total_cmp(&other.low[0]));
    for (position, side) in sides.iter().enumerate() {
        for other in &sides[position + 1..] {
            if other.low[0] > side.high[0] {
                break;
            }
            let (first, second) = (side.at.min(other.at), side.at.max(other.at));
            if second - first < 2 || (first, second) == (0, last) {
                continue;
            }
            let apart = (1..3)
                .any(|axis| other.low[axis] > side.high[axis] || side.low[axis] > other.high[axis]);
            if !apart && meet(side.arc.0, side.arc.1, other.arc.0, other.arc.1) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{crosses_itself, Area, Region};
    use crate::special::geojson::Geometry;
    use crate::special::vectors::{vector, Polygon, Ring};

    fn square(x: f64, y: f64, size: f64) -> Ring {
        let corners = [(x, y), (x + size, y), (x + size, y + size), (x, y + size)];
        Ring::new(corners.iter().map(|&(x, y)| vector(x, y)).collect(), false)
    }

    fn polygon(x: f64, y: f64, size: f64, hole: Option<Ring>) -> Geometry {
        Geometry {
            polygons: vec![Polygon {
                outer: square(x, y, size),
                holes: hole.into_iter().collect(),
            }],
            ..Geometry::default()
        }
    }

    #[test]
    fn squares_hold_meet_and_miss_each_other() {
        let region = Region::new(Area::Geometry(polygon(0.0, 0.0, 10.0, None)));
        for (x, size, holds, meets) in [
            (2.0, 3.0, true, true),
            (8.0, 5.0, false, true),
            (10.0, 5.0, false, false),
            (50.0, 5.0, false, false),
            (-20.0, 60.0, false, true),
        ] {
            let other = polygon(x, if size > 20.0 { -20.0 } else { 2.0 }, size, None);
            assert_eq!(region.holds(&other), holds, "{x}");
            assert_eq!(region.meets(&other), meets, "{x}");
        }
    }

    #[test]
    fn a_hole_is_outside() {
        let region = Region::new(Area::Geometry(polygon(
            0.0,
            0.0,
            10.0,
            Some(square(3.0, 3.0, 4.0)),
        )));
        assert!(!region.holds(&polygon(2.0, 2.0, 6.0, None)));
        assert!(!region.meets(&polygon(4.0, 4.0, 1.0, None)));
        assert!(region.holds(&polygon(0.5, 0.5, 1.0, None)));
    }

    #[test]
    fn a_bow_crosses_itself() {
        let bow = [(0.0, 0.0), (10.0, 10.0), (10.0, 0.0), (0.0, 10.0)];
        let ring = Ring::new(bow.iter().map(|&(x, y)| vector(x, y)).collect(), false);
        assert!(crosses_itself(&ring));
        assert!(!crosses_itself(&square(0.0, 0.0, 10.0)));
    }
}
