//! A division of the sphere into cells: six faces of a cube, each cut in four again and again.
//!
//! A cell's number has its face in the highest three bits, then two bits for each cut, then a 1 and zeros. So the cells
//! within one have the numbers around it, and a geometry is a few cells that together hold it.

use crate::special::geojson::Geometry;
use crate::special::vectors::{angle, distance_to_arc, length, vector, Vector};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const LEVEL_MAX: u32 = 30;
/// A cell taken in needlessly costs a little; one left out would lose a result.
const SLACK: f64 = 1e-9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell(pub u64);

impl Cell {
    fn new(face: u64, i: u64, j: u64, level: u32) -> Cell {
        let mut path = 0_u64;
        for bit in (0..level).rev() {
            path = (path << 2) | (((i >> bit) & 1) << 1) | ((j >> bit) & 1);
        }
        let shift = 2 * (LEVEL_MAX - level);
        Cell((face << 61) | (((path << 1) | 1) << shift))
    }

    /// The smallest cell that holds a point.
    pub fn at(point: Vector) -> Cell {
        let (face, u, v) = project(point);
        let side = |value: f64| -> u64 {
            let scaled = (value.atan() * 4.0 / std::f64::consts::PI + 1.0) / 2.0;
            let cells = (1_u64 << LEVEL_MAX) as f64;
            (scaled * cells).clamp(0.0, cells - 1.0) as u64
        };
        Cell::new(face, side(u), side(v), LEVEL_MAX)
    }

    fn level(self) -> u32 {
        LEVEL_MAX - self.0.trailing_zeros() / 2
    }

    fn lowest_bit(self) -> u64 {
        self.0 & self.0.wrapping_neg()
    }

    /// The first and the last number of cells within it.
    pub fn range(self) -> (u64, u64) {
        let below = self.lowest_bit() - 1;
        (self.0 - below, self.0 + below)
    }

    fn parent(self) -> Option<Cell> {
        if self.level() == 0 {
            return None;
        }
        let bit = self.lowest_bit() << 2;
        Some(Cell((self.0 & bit.wrapping_neg()) | bit))
    }

    fn children(self) -> [Cell; 4] {
        let bit = self.lowest_bit() >> 2;
        let first = self.0 - 3 * bit;
        [0, 1, 2, 3].map(|at| Cell(first + 2 * at * bit))
    }

    /// A point in the middle, and how far the cell reaches from it.
    fn bounds(self) -> (Vector, f64) {
        let (face, level) = (self.0 >> 61, self.level());
        let path = (self.0 & ((1 << 61) - 1)) >> (2 * (LEVEL_MAX - level) + 1);
        let (mut i, mut j) = (0_u64, 0_u64);
        for bit in (0..level).rev() {
            i = (i << 1) | ((path >> (2 * bit + 1)) & 1);
            j = (j << 1) | ((path >> (2 * bit)) & 1);
        }
        let cells = (1_u64 << level) as f64;
        let corner = |di: f64, dj: f64| {
            let side = |at: f64| ((2.0 * at / cells - 1.0) * std::f64::consts::FRAC_PI_4).tan();
            lift(face, side(i as f64 + di), side(j as f64 + dj))
        };
        let middle = corner(0.5, 0.5);
        let reach = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]
            .iter()
            .map(|&(di, dj)| angle(middle, corner(di, dj)))
            .fold(0.0, f64::max);
        (middle, reach)
    }
}

/// The face of a point, and where it lies on it.
fn project(point: Vector) -> (u64, f64, f64) {
    let [x, y, z] = point;
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    if ax >= ay && ax >= az {
        (u64::from(x < 0.0) * 3, y / ax, z / ax)
    } else if ay >= az {
        (1 + u64::from(y < 0.0) * 3, x / ay, z / ay)
    } else {
        (2 + u64::from(z < 0.0) * 3, x / az, y / az)
    }
}

fn lift(face: u64, u: f64, v: f64) -> Vector {
    let sign = if face >= 3 { -1.0 } else { 1.0 };
    let [x, y, z] = match face % 3 {
        0 => [sign, u, v],
        1 => [u, sign, v],
        _ => [u, v, sign],
    };
    let size = length([x, y, z]);
    [x / size, y / size, z / size]
}

/// How a circle lies to a region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Outside,
    Touching,
    Inside,
}

/// What a covering is wanted of.
pub enum Region<'g> {
    Geometry(&'g Geometry),
    Cap { centre: Vector, radius: f64 },
}

impl Region<'_> {
    fn relation(&self, middle: Vector, reach: f64) -> Relation {
        let reach = reach + SLACK;
        match self {
            Region::Cap { centre, radius } => {
                let apart = angle(*centre, middle);
                if apart > radius + reach {
                    Relation::Outside
                } else if apart + reach <= *radius {
                    Relation::Inside
                } else {
                    Relation::Touching
                }
            }
            Region::Geometry(geometry) => geometry_relation(geometry, middle, reach),
        }
    }
}

fn geometry_relation(geometry: &Geometry, middle: Vector, reach: f64) -> Relation {
    let mut touching = geometry
        .points
        .iter()
        .any(|&point| angle(point, middle) <= reach)
        || geometry.lines.iter().any(|line| {
            line.windows(2)
                .any(|pair| distance_to_arc(middle, pair[0], pair[1]) <= reach)
        });
    for polygon in &geometry.polygons {
        if polygon
            .arcs()
            .any(|(a, b)| distance_to_arc(middle, a, b) <= reach)
        {
            touching = true;
        } else if polygon.contains(middle) {
            return Relation::Inside;
        }
    }
    if touching {
        Relation::Touching
    } else {
        Relation::Outside
    }
}

/// At most about `count` cells that together hold a region, ascending.
pub fn covering(region: &Region<'_>, count: usize, level_max: u32) -> Vec<Cell> {
    let mut done = Vec::new();
    // The largest cell is cut first.
    let mut open: BinaryHeap<Reverse<(u32, Cell)>> = BinaryHeap::new();
    for face in 0..6 {
        let cell = Cell::new(face, 0, 0, 0);
        sort_in(region, cell, level_max, &mut open, &mut done);
    }
    while let Some(Reverse((_, cell))) = open.pop() {
        if done.len() + open.len() + 4 > count.max(6) {
            done.push(cell);
            done.extend(open.drain().map(|Reverse((_, cell))| cell));
            break;
        }
        for child in cell.children() {
            sort_in(region, child, level_max, &mut open, &mut done);
        }
    }
    done.sort_unstable();
    done
}

fn sort_in(
    region: &Region<'_>,
    cell: Cell,
    level_max: u32,
    open: &mut BinaryHeap<Reverse<(u32, Cell)>>,
    done: &mut Vec<Cell>,
) {
    let (middle, reach) = cell.bounds();
    match region.relation(middle, reach) {
        Relation::Outside => {}
        Relation::Inside => done.push(cell),
        Relation::Touching if cell.level() >= level_max => done.push(cell),
        Relation::Touching => open.push(Reverse((cell.level(), cell))),
    }
}

/// The cells under which an index keeps a geometry.
pub fn stored_cells(geometry: &Geometry) -> Vec<Cell> {
    const CELLS_MAX: usize = 20;
    const LEVEL_OF_SHAPES: u32 = 23;
    if geometry.lines.is_empty() && geometry.polygons.is_empty() {
        let mut cells: Vec<Cell> = geometry
            .points
            .iter()
            .map(|&point| Cell::at(point))
            .collect();
        cells.sort_unstable();
        cells.dedup();
        return cells;
    }
    covering(&Region::Geometry(geometry), CELLS_MAX, LEVEL_OF_SHAPES)
}

/// Fewer cells that hold the same: the smallest give way to those around them.
pub fn merged(mut cells: Vec<Cell>, count: usize) -> Vec<Cell> {
    cells.sort_unstable();
    cells.dedup();
    while cells.len() > count {
        let deepest = cells.iter().map(|cell| cell.level()).max().unwrap_or(0);
        for cell in &mut cells {
            if cell.level() == deepest {
                *cell = cell.parent().unwrap_or(*cell);
            }
        }
        cells.sort_unstable();
        cells.dedup();
        if deepest == 0 {
            break;
        }
    }
    cells
}

/// Ranges of the numbers of cells that have a part in common with some cells: those within them and those around them.
pub fn search_ranges(cells: &[Cell]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = cells.iter().map(|cell| cell.range()).collect();
    for &cell in cells {
        let mut around = cell.parent();
        while let Some(larger) = around {
            ranges.push((larger.0, larger.0));
            around = larger.parent();
        }
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(2) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

/// The region of a circle around a place.
pub fn cap(longitude: f64, latitude: f64, radius: f64) -> Region<'static> {
    Region::Cap {
        centre: vector(longitude, latitude),
        radius,
    }
}

#[cfg(test)]
mod tests {
    use super::{cap, covering, search_ranges, Cell};
    use crate::special::vectors::{angle, vector};

    fn places() -> Vec<(f64, f64)> {
        let mut places = vec![
            (0.0, 90.0),
            (0.0, -90.0),
            (180.0, 0.0),
            (-180.0, 0.0),
            (45.0, 45.0),
        ];
        for step in 0..400 {
            let at = f64::from(step);
            places.push(((at * 37.7) % 360.0 - 180.0, (at * 17.3) % 180.0 - 90.0));
        }
        places
    }

    #[test]
    fn a_cell_and_its_parents_reach_their_points() {
        for (x, y) in places() {
            let point = vector(x, y);
            let mut cell = Some(Cell::at(point));
            while let Some(around) = cell {
                let (middle, reach) = around.bounds();
                assert!(angle(middle, point) <= reach + 1e-9);
                let (low, high) = around.range();
                assert!((low..=high).contains(&Cell::at(point).0));
                cell = around.parent();
            }
        }
    }

    #[test]
    fn children_share_out_their_cell() {
        let cell = Cell::at(vector(12.0, 34.0))
            .parent()
            .and_then(Cell::parent)
            .expect("has parents");
        let (low, high) = cell.range();
        let children = cell.children();
        assert_eq!(children[0].range().0, low);
        assert_eq!(children[3].range().1, high);
        assert!(children.iter().all(|child| child.parent() == Some(cell)));
    }

    #[test]
    fn a_covering_holds_all_points_of_its_region() {
        for radius in [1e-6, 0.01, 0.3, 1.5, 3.0] {
            for (x, y) in [(0.0, 0.0), (45.0, 35.0), (179.9, -89.0)] {
                let ranges = search_ranges(&covering(&cap(x, y, radius), 32, 30));
                for (px, py) in places() {
                    let point = vector(px, py);
                    if angle(point, vector(x, y)) <= radius {
                        let cell = Cell::at(point).0;
                        assert!(ranges
                            .iter()
                            .any(|&(low, high)| (low..=high).contains(&cell)));
                    }
                }
            }
        }
    }
}
