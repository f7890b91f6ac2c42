//! Points of the unit sphere, arcs of great circles between them, rings and polygons.

pub type Vector = [f64; 3];

/// How near a point must be to an arc to lie on it: below a micrometre on Earth.
const TOUCH: f64 = 1e-13;

/// By how much the left side of a ring must exceed a hemisphere to be the larger one: rounding must not decide.
const HALF_SLACK: f64 = 1e-9;

/// The point at a longitude and latitude in degrees; where many names mean one place, they give one point.
pub fn vector(longitude: f64, latitude: f64) -> Vector {
    if latitude.abs() == 90.0 {
        return [0.0, 0.0, latitude.signum()];
    }
    let (lon, lat) = (longitude.to_radians(), latitude.to_radians());
    if longitude.abs() == 180.0 {
        return [-lat.cos(), 0.0, lat.sin()];
    }
    [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
}

pub fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub fn cross(a: Vector, b: Vector) -> Vector {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

pub fn length(a: Vector) -> f64 {
    dot(a, a).sqrt()
}

/// The angle between two points; exact for small ones too.
pub fn angle(a: Vector, b: Vector) -> f64 {
    length(cross(a, b)).atan2(dot(a, b))
}

/// The angle between a point and the nearest point of an arc.
pub fn distance_to_arc(point: Vector, a: Vector, b: Vector) -> f64 {
    let ends = angle(point, a).min(angle(point, b));
    let normal = cross(a, b);
    let size = length(normal);
    if size < 1e-15 {
        return ends;
    }
    let between = dot(cross(normal, a), point) > 0.0 && dot(cross(b, normal), point) > 0.0;
    if between {
        (dot(point, normal) / size).abs().min(1.0).asin().min(ends)
    } else {
        ends
    }
}

pub fn on_arc(point: Vector, a: Vector, b: Vector) -> bool {
    distance_to_arc(point, a, b) < TOUCH
}

/// Whether two arcs cross at a point inside both.
fn cross_properly(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    let (ab, cd) = (cross(a, b), cross(c, d));
    let turns = [-dot(ab, c), dot(ab, d), -dot(cd, b), dot(cd, a)];
    if turns.iter().any(|turn| turn.abs() < 1e-15) {
        return false;
    }
    turns.iter().all(|turn| turn * turns[0] > 0.0)
}

fn meet(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    cross_properly(a, b, c, d)
        || on_arc(a, c, d)
        || on_arc(b, c, d)
        || on_arc(c, a, b)
        || on_arc(d, a, b)
}

/// A closed line and the region on one side of it: the smaller one, or the one to its left.
pub struct Ring {
    pub vertices: Vec<Vector>,
    /// The region is what the winding number calls the outside.
    inverted: bool,
}

impl Ring {
    pub fn new(mut vertices: Vec<Vector>, left: bool) -> Self {
        let large = area_to_the_left(&vertices) > 2.0 * std::f64::consts::PI + HALF_SLACK;
        if large {
            vertices.reverse();
        }
        Ring {
            vertices,
            inverted: left && large,
        }
    }

    pub fn arcs(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        let count = self.vertices.len();
        (0..count).map(move |at| (self.vertices[at], self.vertices[(at + 1) % count]))
    }

    pub fn on_edge(&self, point: Vector) -> bool {
        self.arcs().any(|(a, b)| on_arc(point, a, b))
    }

    /// Whether a point that lies on no side is inside.
    pub fn contains(&self, point: Vector) -> bool {
        let mut turn = 0.0;
        for (a, b) in self.arcs() {
            let across = dot(point, cross(a, b));
            turn += across.atan2(dot(a, b) - dot(point, a) * dot(point, b));
        }
        ((turn / (2.0 * std::f64::consts::PI)).round() == 1.0) != self.inverted
    }

    /// Whether sides that are no neighbours meet.
    pub fn crosses_itself(&self) -> bool {
        let arcs: Vec<_> = self.arcs().collect();
        let last = arcs.len() - 1;
        for (at, &(a, b)) in arcs.iter().enumerate() {
            for (other, &(c, d)) in arcs.iter().enumerate().skip(at + 2) {
                if (at, other) != (0, last) && meet(a, b, c, d) {
                    return true;
                }
            }
        }
        false
    }
}

fn area_to_the_left(vertices: &[Vector]) -> f64 {
    let mut total = 0.0;
    let Some((&origin, rest)) = vertices.split_first() else {
        return 0.0;
    };
    for pair in rest.windows(2) {
        let (b, c) = (pair[0], pair[1]);
        let below = 1.0 + dot(origin, b) + dot(b, c) + dot(c, origin);
        total += 2.0 * dot(origin, cross(b, c)).atan2(below);
    }
    total.rem_euclid(4.0 * std::f64::consts::PI)
}

/// A ring without its holes.
pub struct Polygon {
    pub outer: Ring,
    pub holes: Vec<Ring>,
}

impl Polygon {
    pub fn arcs(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        self.outer
            .arcs()
            .chain(self.holes.iter().flat_map(Ring::arcs))
    }

    pub fn contains(&self, point: Vector) -> bool {
        self.outer.contains(point) && !self.holes.iter().any(|hole| hole.contains(point))
    }

    /// Whether a ring lies in the outer ring.
    pub fn can_have_hole(outer: &Ring, hole: &Ring) -> bool {
        let inside = |point: Vector| outer.contains(point) && !outer.on_edge(point);
        hole.vertices.iter().all(|&point| inside(point))
            && !hole
                .arcs()
                .any(|(a, b)| outer.arcs().any(|(c, d)| cross_properly(a, b, c, d)))
    }
}

#[cfg(test)]
mod tests {
    use super::{angle, vector, Ring};

    fn square(left: bool) -> Ring {
        let corners = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0)];
        let mut vertices: Vec<_> = corners.iter().map(|&(x, y)| vector(x, y)).collect();
        if left {
            vertices.reverse();
        }
        Ring::new(vertices, left)
    }

    #[test]
    fn a_ring_holds_the_smaller_side_unless_the_left_one_is_asked_for() {
        assert!(square(false).contains(vector(5.0, 5.0)));
        assert!(!square(false).contains(vector(-5.0, 5.0)));
        assert!(!square(true).contains(vector(5.0, 5.0)));
        assert!(square(true).contains(vector(-5.0, 5.0)));
    }

    #[test]
    fn angles_of_near_points_are_exact() {
        let found = angle(vector(0.0, 0.0), vector(1e-9, 0.0)).to_degrees();
        assert!((found - 1e-9).abs() < 1e-20);
    }
}
