//! Keys of 2d indexes: the plane, cut in four again and again, each point the number of the smallest cell around it.

use crate::elements::{kind, Element};
use crate::keystring::{append_cell, Failure};
use crate::special::geojson::{items, number};
use crate::special::paths::values;

pub struct Plane {
    bits: u32,
    min: f64,
    max: f64,
}

impl Plane {
    pub fn new(bits: u32, min: f64, max: f64) -> Self {
        Plane {
            bits: bits.clamp(1, 32),
            min,
            max,
        }
    }

    /// The number of the column or row of a coordinate.
    fn side(&self, value: f64) -> u64 {
        let cells = (1_u64 << self.bits) as f64;
        let scaled = (value - self.min) / (self.max - self.min) * cells;
        scaled.clamp(0.0, cells - 1.0) as u64
    }

    /// The number of the smallest cell, its bits in the highest places.
    fn cell(&self, i: u64, j: u64) -> u64 {
        let mut number = 0;
        for bit in (0..self.bits).rev() {
            number = (number << 2) | (((i >> bit) & 1) << 1) | ((j >> bit) & 1);
        }
        if self.bits < 32 {
            number << (64 - 2 * self.bits)
        } else {
            number
        }
    }

    fn key_of(&self, x: f64, y: f64) -> Result<u64, Failure> {
        let within = |value: f64| value >= self.min && value <= self.max;
        if !(within(x) && within(y)) {
            return Err(Failure::Refused(
                13027,
                format!(
                    "point not in interval of [ {}, {} ] :: caused by :: {{ : {x}, : {y} }}",
                    self.min, self.max
                ),
            ));
        }
        Ok(self.cell(self.side(x), self.side(y)))
    }

    /// At most about `count` ranges of cells that together hold a rectangle.
    pub fn covering(&self, low: (f64, f64), high: (f64, f64), count: usize) -> Vec<(u64, u64)> {
        if high.0 < self.min || high.1 < self.min || low.0 > self.max || low.1 > self.max {
            return Vec::new();
        }
        // One cell more on each side makes up for rounding.
        let last = (1_u64 << self.bits) - 1;
        let wanted = Rectangle {
            i: (
                self.side(low.0).saturating_sub(1),
                (self.side(high.0) + 1).min(last),
            ),
            j: (
                self.side(low.1).saturating_sub(1),
                (self.side(high.1) + 1).min(last),
            ),
        };
        let mut open = vec![(0_u64, 0_u64, 0_u32)];
        let mut done = Vec::new();
        while !open.is_empty() {
            if open.len() + done.len() > count {
                done.append(&mut open);
                break;
            }
            let mut next = Vec::new();
            for (i, j, level) in open {
                let size = 1_u64 << (self.bits - level);
                let cell = Rectangle {
                    i: (i * size, i * size + size - 1),
                    j: (j * size, j * size + size - 1),
                };
                if !wanted.meets(&cell) {
                    continue;
                }
                if level == self.bits || wanted.holds(&cell) {
                    done.push((i, j, level));
                    continue;
                }
                for (di, dj) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    next.push((2 * i + di, 2 * j + dj, level + 1));
                }
            }
            open = next;
        }
        let mut ranges: Vec<(u64, u64)> = done
            .into_iter()
            .map(|(i, j, level)| {
                let shift = self.bits - level;
                let first = self.cell(i << shift, j << shift);
                let width = 64 - 2 * level;
                let span = if width == 64 {
                    u64::MAX
                } else {
                    (1_u64 << width) - 1
                };
                (first, first | span)
            })
            .collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        joined
    }
}

struct Rectangle {
    i: (u64, u64),
    j: (u64, u64),
}

impl Rectangle {
    fn meets(&self, other: &Rectangle) -> bool {
        self.i.0 <= other.i.1
            && other.i.0 <= self.i.1
            && self.j.0 <= other.j.1
            && other.j.0 <= self.j.1
    }

    fn holds(&self, other: &Rectangle) -> bool {
        self.i.0 <= other.i.0
            && other.i.1 <= self.i.1
            && self.j.0 <= other.j.0
            && other.j.1 <= self.j.1
    }
}

pub struct FlatKeys {
    pub path: Vec<Vec<u8>>,
    pub plane: Plane,
}

impl FlatKeys {
    /// The different keys of a document, in order.
    pub fn keys(&self, document: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut cells = Vec::new();
        for element in values(document, &self.path, false)?.found {
            self.cells_of(element, &mut cells)?;
        }
        cells.sort_unstable();
        cells.dedup();
        Ok(cells
            .into_iter()
            .map(|cell| {
                let mut key = Vec::with_capacity(9);
                append_cell(&mut key, cell);
                key
            })
            .collect())
    }

    /// A pair of numbers, as an array or object, or an array of such.
    fn cells_of(&self, element: Element<'_>, cells: &mut Vec<u64>) -> Result<(), Failure> {
        if element.kind != kind::ARRAY && element.kind != kind::OBJECT {
            return Ok(());
        }
        let found =
            items(element, "Point").map_err(|_| Failure::Malformed("a point is malformed"))?;
        let Some(first) = found.first() else {
            return Ok(());
        };
        if first.kind == kind::ARRAY || first.kind == kind::OBJECT {
            for item in found {
                if item.kind != kind::ARRAY && item.kind != kind::OBJECT {
                    return Err(Failure::Refused(
                        13654,
                        "location object expected, location array not in correct format".into(),
                    ));
                }
                cells.push(self.pair(&items(item, "Point").unwrap_or_default())?);
            }
            return Ok(());
        }
        cells.push(self.pair(&found)?);
        Ok(())
    }

    fn pair(&self, found: &[Element<'_>]) -> Result<u64, Failure> {
        let refuse = |code, why: &str| Err(Failure::Refused(code, why.to_string()));
        let Some(first) = found.first() else {
            return refuse(13067, "geo field is empty");
        };
        let Some(second) = found.get(1) else {
            return refuse(13068, "geo field only has 1 element");
        };
        match (number(*first), number(*second)) {
            (Some(x), Some(y)) => self.plane.key_of(x, y),
            _ => refuse(
                13026,
                "geo values must be 'legacy coordinate pairs' for 2d indexes",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Plane;

    #[test]
    fn a_covering_holds_all_points_of_its_rectangle() {
        for bits in [1, 5, 26, 32] {
            let plane = Plane::new(bits, -180.0, 180.0);
            let ranges = plane.covering((-10.0, 3.5), (12.0, 180.0), 32);
            for step in 0..500 {
                let x = f64::from(step) * 0.7 - 180.0;
                let y = f64::from(step * 13 % 360) - 180.0;
                let Ok(key) = plane.key_of(x, y) else {
                    continue;
                };
                if (-10.0..=12.0).contains(&x) && y >= 3.5 {
                    assert!(ranges
                        .iter()
                        .any(|&(low, high)| (low..=high).contains(&key)));
                }
            }
        }
    }

    #[test]
    fn what_is_outside_has_no_key() {
        let plane = Plane::new(26, -180.0, 180.0);
        assert!(plane.key_of(180.0, -180.0).is_ok());
        assert!(plane.key_of(180.1, 0.0).is_err());
        assert!(plane.key_of(f64::NAN, 0.0).is_err());
    }
}
