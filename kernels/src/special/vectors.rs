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

/// Whether two points are one.
pub fn same(a: Vector, b: Vector) -> bool {
    angle(a, b) < TOUCH
}

/// Whether two arcs cross at a point inside both.
pub fn cross_properly(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    let (ab, cd) = (cross(a, b), cross(c, d));
    let turns = [-dot(ab, c), dot(ab, d), -dot(cd, b), dot(cd, a)];
    if turns.iter().any(|turn| turn.abs() < 1e-15) {
        return false;
    }
    turns.iter().all(|turn| turn * turns[0] > 0.0)
}

pub fn meet(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    cross_properly(a, b, c, d)
        || on_arc(a, c, d)
        || on_arc(b, c, d)
        || on_arc(c, a, b)
        || on_arc(d, a, b)
}

fn scaled(a: Vector, by: f64) -> Vector {
    a.map(|part| part * by)
}

pub fn sum(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

pub fn normalized(a: Vector) -> Vector {
    let size = length(a);
    if size == 0.0 {
        a
    } else {
        scaled(a, 1.0 / size)
    }
}

/// A closed line and the region on one side of it: the smaller one, or the one to its left.
pub struct Ring {
    pub vertices: Vec<Vector>,
    inner: Vector,
}

impl Ring {
    pub fn new(mut vertices: Vec<Vector>, left: bool) -> Self {
        if !left && area_to_the_left(&vertices) > 2.0 * std::f64::consts::PI + HALF_SLACK {
            vertices.reverse();
        }
        let mut ring = Ring {
            vertices,
            inner: [0.0; 3],
        };
        ring.inner = ring.point_inside();
        ring
    }

    /// A point to the left of the longest side, nearer to it than to any other.
    fn point_inside(&self) -> Vector {
        let arcs: Vec<_> = self.arcs().collect();
        let longest = (0..arcs.len())
            .max_by(|&one, &other| {
                let size = |at: usize| angle(arcs[at].0, arcs[at].1);
                size(one).total_cmp(&size(other))
            })
            .unwrap_or(0);
        let Some(&(a, b)) = arcs.get(longest) else {
            return [0.0; 3];
        };
        let middle = normalized(sum(a, b));
        let room = arcs
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != longest)
            .map(|(_, &(c, d))| distance_to_arc(middle, c, d))
            .fold(f64::INFINITY, f64::min);
        let step = (room / 2.0).min(0.1).tan();
        normalized(sum(middle, scaled(normalized(cross(a, b)), step)))
    }

    pub fn arcs(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        let count = self.vertices.len();
        (0..count).map(move |at| (self.vertices[at], self.vertices[(at + 1) % count]))
    }

    pub fn on_edge(&self, point: Vector) -> bool {
        self.arcs().any(|(a, b)| on_arc(point, a, b))
    }

    /// Whether a point that lies on no side is inside: the way to one that is, crosses an even number of sides.
    pub fn contains(&self, point: Vector) -> bool {
        if dot(point, self.inner) > -0.9 {
            return self.crossings(point, self.inner).is_multiple_of(2);
        }
        // There is no one way between points that lie opposite to each other.
        let mut axis = [0.0; 3];
        let least = (0..3)
            .min_by(|&one, &other| point[one].abs().total_cmp(&point[other].abs()))
            .unwrap_or(0);
        axis[least] = 1.0;
        let between = normalized(cross(point, axis));
        (self.crossings(point, between) + self.crossings(between, self.inner)).is_multiple_of(2)
    }

    /// How many sides cross an arc; a corner on it counts for one of its sides.
    fn crossings(&self, start: Vector, stop: Vector) -> usize {
        let normal = cross(start, stop);
        self.arcs()
            .filter(|&(a, b)| {
                if (dot(normal, a) >= 0.0) == (dot(normal, b) >= 0.0) {
                    return false;
                }
                let mut meeting = cross(normal, cross(a, b));
                if dot(meeting, sum(a, b)) < 0.0 {
                    meeting = scaled(meeting, -1.0);
                }
                dot(cross(start, meeting), normal) > 0.0 && dot(cross(meeting, stop), normal) > 0.0
            })
            .count()
    }
}

/// What the turns at the corners leave of a full turn.
fn area_to_the_left(vertices: &[Vector]) -> f64 {
    let count = vertices.len();
    let mut turns = 0.0;
    for (at, &corner) in vertices.iter().enumerate() {
        let come = cross(vertices[(at + count - 1) % count], corner);
        let go = cross(corner, vertices[(at + 1) % count]);
        turns += dot(cross(come, go), corner).atan2(dot(come, go));
    }
    2.0 * std::f64::consts::PI - turns
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

    pub fn on_edge(&self, point: Vector) -> bool {
        self.outer.on_edge(point) || self.holes.iter().any(|hole| hole.on_edge(point))
    }

    /// Whether a point is inside or on a side.
    pub fn covers(&self, point: Vector) -> bool {
        self.on_edge(point) || self.contains(point)
    }

    /// Whether a point that lies on no side is inside.
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
    fn a_band_around_the_sphere_holds_points_opposite_to_each_other() {
        let mut corners: Vec<_> = (-8..=8).map(|at| (f64::from(at) * 20.0, -5.0)).collect();
        corners.extend((-8..=8).rev().map(|at| (f64::from(at) * 20.0, 5.0)));
        let ring = Ring::new(corners.iter().map(|&(x, y)| vector(x, y)).collect(), false);
        for (x, y, inside) in [
            (100.0, 0.0, true),
            (-80.0, 0.0, true),
            (179.0, 0.0, false),
            (0.0, 20.0, false),
        ] {
            assert_eq!(ring.contains(vector(x, y)), inside, "{x} {y}");
        }
    }

    #[test]
    fn angles_of_near_points_are_exact() {
        let found = angle(vector(0.0, 0.0), vector(1e-9, 0.0)).to_degrees();
        assert!((found - 1e-9).abs() < 1e-20);
    }
}
