//! The columns of many buckets, one after the other, as typed arrays; and rows built from them again.

use crate::column::{
    decode_f64, decode_i64, decode_object_ids, decode_strings, double, ColumnDecoder,
    StringDictionary, Uniform, MISSING_CODE,
};
use crate::elements::{elements, find, kind, Element};
use crate::pack::{id_of, BucketSource, Kind, PackedColumn, Torn};
use crate::unpack::{check_size, packed, row_number, summary, Failure, ROWS_MAX};
use crate::writer::{begin, element, end, header};
use std::collections::HashMap;

/// The values of one field in all rows.
#[derive(Debug)]
pub enum Data {
    /// No row has a value.
    Missing(usize),
    /// int32, int64, bool, date or timestamp.
    Whole {
        kind: u8,
        values: Vec<i64>,
        present: Vec<u8>,
    },
    Double {
        values: Vec<f64>,
        present: Vec<u8>,
    },
    Text {
        dictionary: StringDictionary,
        codes: Vec<u32>,
    },
    Ids {
        values: Vec<[u8; 12]>,
        present: Vec<u8>,
    },
    /// Any types: for each row its type byte and value, or nothing; `ends` tells where each row's bytes end.
    Raw {
        bytes: Vec<u8>,
        ends: Vec<usize>,
    },
}

/// The columns of many buckets.
#[derive(Debug)]
pub struct Columns {
    pub time_field: Vec<u8>,
    /// Where the time stands in `names`.
    time: Option<usize>,
    pub names: Vec<Vec<u8>>,
    pub data: Vec<Data>,
    /// Where the rows of each bucket begin, and at last how many rows there are.
    pub offsets: Vec<i64>,
    /// Type byte and value of each bucket's meta.
    pub metas: Vec<Option<Vec<u8>>>,
    /// No time of a bucket is before the one, or after the other.
    pub earliest: Vec<i64>,
    pub latest: Vec<i64>,
    /// Each bucket's fields, as positions in `names`, in the order of its columns.
    orders: Vec<Vec<usize>>,
}

impl Columns {
    /// The named fields of the buckets, or all that occur.
    pub fn unpack(
        buckets: &[BucketSource<'_>],
        time_field: &[u8],
        fields: Option<&[String]>,
    ) -> Result<Self, Failure> {
        Self::unpack_edges(buckets, time_field, fields, None)
    }

    /// The same; of buckets that tell their newest (or oldest) measurement without being unpacked that one alone.
    pub fn unpack_edges(
        buckets: &[BucketSource<'_>],
        time_field: &[u8],
        fields: Option<&[String]>,
        newest: Option<bool>,
    ) -> Result<Self, Failure> {
        let mut columns = Self {
            time_field: time_field.to_vec(),
            time: None,
            names: Vec::new(),
            data: Vec::new(),
            offsets: vec![0],
            metas: Vec::with_capacity(buckets.len()),
            orders: Vec::with_capacity(buckets.len()),
            earliest: Vec::with_capacity(buckets.len()),
            latest: Vec::with_capacity(buckets.len()),
        };
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        for field in fields.unwrap_or_default() {
            if !places.contains_key(field.as_bytes()) {
                columns.place(field.as_bytes(), &mut places);
            }
        }
        let expected = match newest {
            None => buckets.iter().map(BucketSource::expected).sum(),
            Some(_) => 0,
        };
        for bucket in buckets {
            columns.add(*bucket, fields.is_none(), &mut places, newest)?;
            columns
                .data
                .iter_mut()
                .for_each(|data| data.reserve(expected));
        }
        Ok(columns)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.last().map_or(0, |rows| *rows as usize)
    }

    fn place(&mut self, name: &[u8], places: &mut HashMap<Vec<u8>, usize>) -> usize {
        let place = self.names.len();
        if name == self.time_field {
            self.time = Some(place);
        }
        places.insert(name.to_vec(), place);
        self.names.push(name.to_vec());
        self.data.push(Data::Missing(self.rows()));
        place
    }

    fn add(
        &mut self,
        source: BucketSource<'_>,
        every: bool,
        places: &mut HashMap<Vec<u8>, usize>,
        newest: Option<bool>,
    ) -> Result<(), Failure> {
        let bucket = source.head();
        let summary = summary(bucket, &self.time_field)?;
        let mut count = summary.count;
        if count > ROWS_MAX {
            return Err(Failure::new(2, "the bucket claims too many measurements"));
        }
        let wanted = |name: &[u8]| every || places.contains_key(name);
        let edge = match (source, newest) {
            (BucketSource::Packed { pack, number, .. }, Some(newest)) => {
                pack.edge(number, &self.time_field, newest, wanted)
            }
            _ => None,
        };
        if edge.is_some() {
            count = 1;
        }
        let meta = find(bucket, b"meta")?.map(|meta| [&[meta.kind], meta.value].concat());
        let total = self.rows() + count;
        let mut order = Vec::new();
        if let BucketSource::Packed { pack, number, .. } = source {
            let mut edge = edge.map(|edge| edge.into_iter().peekable());
            for (field, name) in pack.fields_of(number) {
                let place = match places.get(name) {
                    Some(place) => *place,
                    None if every => self.place(name, places),
                    None => continue,
                };
                order.push(place);
                let column = match &mut edge {
                    Some(edge) => edge
                        .next_if(|(own, _)| *own == field)
                        .map(|(_, column)| PackedColumn::Coded(column)),
                    None => pack.column(number, field)?,
                };
                if let (Some(data), Some(column)) = (self.data.get_mut(place), column) {
                    data.add_packed(&column, count)?;
                }
            }
        } else if let Some(data) = find(bucket, b"data")?.filter(|data| data.kind == kind::OBJECT) {
            for column in elements(data.value)? {
                let column = column?;
                let place = match places.get(column.name) {
                    Some(place) => *place,
                    None if every => self.place(column.name, places),
                    None => continue,
                };
                if order.contains(&place) {
                    return Err(Failure::new(2, "the bucket has two columns of one name"));
                }
                order.push(place);
                if let Some(data) = self.data.get_mut(place) {
                    data.add(column, count)?;
                }
            }
        }
        for data in &mut self.data {
            data.fill(total);
        }
        self.metas.push(meta);
        let known = summary.bounded && summary.min_ms <= summary.max_ms;
        self.earliest
            .push(if known { summary.min_ms } else { i64::MIN });
        self.latest
            .push(if known { summary.max_ms } else { i64::MAX });
        self.orders.push(order);
        self.offsets.push(total as i64);
        Ok(())
    }

    /// Appends a raw document for a row: time, meta under its name, then the other columns in the order of the bucket. False,
    /// and nothing done, if there is no such row. `bucket` is where the last row was found, and is moved.
    pub fn write_row(
        &self,
        row: usize,
        meta_field: Option<&[u8]>,
        bucket: &mut usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let here = |bucket: usize| {
            let within = |at: usize| self.offsets.get(at).map_or(0, |offset| *offset as usize);
            within(bucket) <= row && row < within(bucket + 1)
        };
        if !here(*bucket) {
            let after = self.offsets.partition_point(|offset| *offset <= row as i64);
            *bucket = after.wrapping_sub(1);
        }
        let bucket = *bucket;
        let Some(order) = self.orders.get(bucket) else {
            return false;
        };
        let begun = begin(out);
        if let Some(time) = self.time.filter(|time| order.contains(time)) {
            self.write_value(time, row, out);
        }
        if let (Some(name), Some(Some(meta))) = (meta_field, self.metas.get(bucket)) {
            if let Some((type_byte, value)) = meta.split_first() {
                element(out, *type_byte, name, value);
            }
        }
        for place in order.iter().filter(|place| Some(**place) != self.time) {
            self.write_value(*place, row, out);
        }
        end(out, begun);
        true
    }

    fn write_value(&self, place: usize, row: usize, out: &mut Vec<u8>) {
        if let (Some(name), Some(data)) = (self.names.get(place), self.data.get(place)) {
            data.write(row, name, out);
        }
    }
}

fn note_present(present: &mut Vec<u8>, gaps: Option<Vec<u8>>, count: usize) {
    match gaps {
        Some(gaps) => present.extend(gaps),
        None => present.resize(present.len() + count, 1),
    }
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Self::Missing(rows) => *rows,
            Self::Whole { values, .. } => values.len(),
            Self::Double { values, .. } => values.len(),
            Self::Text { codes, .. } => codes.len(),
            Self::Ids { values, .. } => values.len(),
            Self::Raw { ends, .. } => ends.len(),
        }
    }

    /// Adds missing values up to this many rows.
    fn fill(&mut self, total: usize) {
        match self {
            Self::Missing(rows) => *rows = total,
            Self::Whole {
                values, present, ..
            } => {
                values.resize(total, 0);
                present.resize(total, 0);
            }
            Self::Double { values, present } => {
                values.resize(total, 0.0);
                present.resize(total, 0);
            }
            Self::Text { codes, .. } => codes.resize(total, MISSING_CODE),
            Self::Ids { values, present } => {
                values.resize(total, [0; 12]);
                present.resize(total, 0);
            }
            Self::Raw { bytes, ends } => ends.resize(total, bytes.len()),
        }
    }

    /// Adds the `count` entries of a bucket's column.
    fn add(&mut self, column: Element<'_>, count: usize) -> Result<(), Failure> {
        let before = self.len();
        if column.kind == kind::OBJECT {
            self.turn_raw()?;
            return self.add_plain(column, before, count);
        }
        self.add_column(packed(column)?, count)
    }

    /// Adds the `count` entries of a column's bytes.
    fn add_column(&mut self, bytes: &[u8], count: usize) -> Result<(), Failure> {
        let before = self.len();
        if !self.add_typed(bytes, count)? {
            self.turn_raw()?;
            self.add_raw(bytes, count)?;
        }
        if self.len() != before + count {
            return Err(Failure::new(
                6067601,
                "a column of the bucket has fewer entries than control.count says",
            ));
        }
        Ok(())
    }

    /// Makes room for so many rows in all.
    fn reserve(&mut self, rows: usize) {
        let more = rows.saturating_sub(self.len());
        match self {
            Self::Whole {
                values, present, ..
            } => {
                values.reserve(more);
                present.reserve(more);
            }
            Self::Double { values, present } => {
                values.reserve(more);
                present.reserve(more);
            }
            _ => {}
        }
    }

    /// Adds the `count` entries of a column in a pack.
    pub fn add_packed(&mut self, column: &PackedColumn<'_>, count: usize) -> Result<(), Failure> {
        let coded = match column {
            PackedColumn::Raw(bytes) => return self.add_column(bytes, count),
            PackedColumn::Coded(coded) => coded,
        };
        let before = self.len();
        if let Self::Missing(rows) = self {
            let present = vec![0; *rows];
            *self = match coded.kind {
                Kind::Double(_) => Self::Double {
                    values: vec![0.0; *rows],
                    present,
                },
                Kind::Whole(kind) => Self::Whole {
                    kind,
                    values: vec![0; *rows],
                    present,
                },
                Kind::Id(_) => Self::Ids {
                    values: vec![[0; 12]; *rows],
                    present,
                },
            };
        }
        match (&mut *self, coded.kind) {
            (Self::Double { values, present }, Kind::Double(scale)) => {
                values.reserve(count);
                let factor = double::factor(usize::from(scale));
                let gaps = match factor {
                    Some(1.0) => coded.values(values, |number| number as f64),
                    Some(factor) => coded.values(values, |number| number as f64 / factor),
                    None => coded.values(values, |number| f64::from_bits(number as u64)),
                }?;
                note_present(present, gaps, count);
            }
            (
                Self::Whole {
                    kind,
                    values,
                    present,
                },
                Kind::Whole(own),
            ) if *kind == own => {
                let gaps = coded.values(values, |number| number)?;
                note_present(present, gaps, count);
            }
            (Self::Ids { values, present }, Kind::Id(process)) => {
                let gaps = coded.values(values, |number| id_of(number, process))?;
                note_present(present, gaps, count);
            }
            _ => {
                self.turn_raw()?;
                let mut own = Self::Missing(0);
                own.add_packed(column, count)?;
                if let Self::Raw { bytes, ends } = self {
                    for row in 0..own.len() {
                        own.write_bare(row, bytes);
                        ends.push(bytes.len());
                    }
                    check_size(bytes.len())?;
                }
            }
        }
        if self.len() != before + count {
            return Err(Torn.into());
        }
        Ok(())
    }

    /// Adds a column of the type that is there already; false, and nothing done, if it has another.
    fn add_typed(&mut self, column: &[u8], count: usize) -> Result<bool, Failure> {
        match self {
            Self::Missing(rows) => {
                let rows = *rows;
                return self.begin_typed(column, count, rows);
            }
            Self::Whole {
                kind,
                values,
                present,
            } => {
                let before = values.len();
                match decode_i64(column, count, values, present)? {
                    Uniform::Kind(found) if found == *kind => return Ok(true),
                    Uniform::Empty => return Ok(true),
                    Uniform::Kind(_) => {
                        values.truncate(before);
                        present.truncate(before);
                    }
                    Uniform::Mixed => {}
                }
            }
            Self::Double { values, present } => {
                return Ok(decode_f64(column, count, values, present)? != Uniform::Mixed);
            }
            Self::Text { dictionary, codes } => {
                return Ok(decode_strings(column, count, dictionary, codes)? != Uniform::Mixed);
            }
            Self::Ids { values, present } => {
                return Ok(decode_object_ids(column, count, values, present)? != Uniform::Mixed);
            }
            Self::Raw { .. } => {}
        }
        Ok(false)
    }

    /// The first column that has values decides the type.
    fn begin_typed(&mut self, column: &[u8], count: usize, rows: usize) -> Result<bool, Failure> {
        // Mostly a column begins with a value, and a value with its type.
        let first = match column.first().copied() {
            Some(kind @ (kind::DOUBLE | kind::STRING | kind::OBJECT_ID)) => Some(kind),
            Some(kind::BOOL | kind::DATE | kind::INT32 | kind::TIMESTAMP | kind::INT64) => {
                Some(kind::INT64)
            }
            _ => None,
        };
        let may_be = |kind: u8| first.is_none_or(|first| first == kind);
        let mut present = with_room(0, rows, count);
        if may_be(kind::DOUBLE) {
            let mut values = with_room(0.0, rows, count);
            match decode_f64(column, count, &mut values, &mut present)? {
                Uniform::Empty => {
                    *self = Self::Missing(values.len());
                    return Ok(true);
                }
                Uniform::Kind(_) => {
                    *self = Self::Double { values, present };
                    return Ok(true);
                }
                Uniform::Mixed => {}
            }
        }
        if may_be(kind::INT64) {
            let mut values = with_room(0, rows, count);
            if let Uniform::Kind(kind) = decode_i64(column, count, &mut values, &mut present)? {
                *self = Self::Whole {
                    kind,
                    values,
                    present,
                };
                return Ok(true);
            }
        }
        if may_be(kind::STRING) {
            let mut dictionary = StringDictionary::default();
            let mut codes = with_room(MISSING_CODE, rows, count);
            if let Uniform::Kind(_) = decode_strings(column, count, &mut dictionary, &mut codes)? {
                *self = Self::Text { dictionary, codes };
                return Ok(true);
            }
        }
        if may_be(kind::OBJECT_ID) {
            let mut values = with_room([0; 12], rows, count);
            if let Uniform::Kind(_) = decode_object_ids(column, count, &mut values, &mut present)? {
                *self = Self::Ids { values, present };
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn turn_raw(&mut self) -> Result<(), Failure> {
        if matches!(self, Self::Raw { .. }) {
            return Ok(());
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(self.len()));
        for row in 0..self.len() {
            self.write_bare(row, &mut bytes);
            check_size(bytes.len())?;
            ends.push(bytes.len());
        }
        *self = Self::Raw { bytes, ends };
        Ok(())
    }

    fn add_raw(&mut self, column: &[u8], count: usize) -> Result<(), Failure> {
        if let Self::Raw { bytes, ends } = self {
            for entry in ColumnDecoder::new(column, count) {
                if let Some(value) = entry? {
                    bytes.push(value.kind());
                    bytes.extend_from_slice(value.bytes());
                    check_size(bytes.len())?;
                }
                ends.push(bytes.len());
            }
        }
        Ok(())
    }

    fn add_plain(
        &mut self,
        column: Element<'_>,
        before: usize,
        count: usize,
    ) -> Result<(), Failure> {
        for element in elements(column.value)? {
            let element = element?;
            let row = row_number(element.name)?;
            if row >= count || before + row < self.len() {
                return Err(Failure::new(
                    2,
                    "a row number of the bucket is not as expected",
                ));
            }
            self.fill(before + row);
            if let Self::Raw { bytes, ends } = self {
                bytes.push(element.kind);
                bytes.extend_from_slice(element.value);
                ends.push(bytes.len());
            }
        }
        self.fill(before + count);
        Ok(())
    }

    /// A column by itself, whatever its values are.
    pub fn all_of_column(column: &[u8], count: usize) -> Result<Self, Failure> {
        let mut data = Self::Missing(0);
        data.add_column(column, count)?;
        Ok(data)
    }

    /// A column by itself; None where its values are of several types or of one that has no array, where it is malformed, and
    /// where it has another number of entries.
    pub fn of_column(column: &[u8], count: usize) -> Option<Self> {
        let mut data = Self::Missing(0);
        let typed = data.add_typed(column, count).unwrap_or(false);
        (typed && data.len() == count).then_some(data)
    }

    /// Appends the value of a row as an element, where the row has one; returns whether.
    #[inline]
    pub fn write(&self, row: usize, name: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Self::Missing(_) => false,
            Self::Whole {
                kind,
                values,
                present,
            } => {
                let (Some(1), Some(value)) = (present.get(row), values.get(row)) else {
                    return false;
                };
                let bytes = value.to_le_bytes();
                let length = width_of(*kind);
                element(out, *kind, name, bytes.get(..length).unwrap_or_default());
                true
            }
            Self::Double { values, present } => {
                let (Some(1), Some(value)) = (present.get(row), values.get(row)) else {
                    return false;
                };
                element(out, kind::DOUBLE, name, &value.to_le_bytes());
                true
            }
            Self::Text { dictionary, codes } => {
                let Some(text) = codes.get(row).and_then(|code| dictionary.get(*code)) else {
                    return false;
                };
                header(out, kind::STRING, name);
                out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
                out.extend_from_slice(text);
                out.push(0);
                true
            }
            Self::Ids { values, present } => {
                let (Some(1), Some(value)) = (present.get(row), values.get(row)) else {
                    return false;
                };
                element(out, kind::OBJECT_ID, name, value);
                true
            }
            Self::Raw { bytes, ends } => {
                let end = ends.get(row).copied().unwrap_or(0);
                let start = row
                    .checked_sub(1)
                    .and_then(|row| ends.get(row))
                    .copied()
                    .unwrap_or(0);
                let Some((type_byte, value)) =
                    bytes.get(start..end).and_then(|bytes| bytes.split_first())
                else {
                    return false;
                };
                element(out, *type_byte, name, value);
                true
            }
        }
    }

    /// Appends type byte and value of a row, or nothing where it has none.
    pub fn write_bare(&self, row: usize, out: &mut Vec<u8>) {
        let here = |present: &Vec<u8>| present.get(row) == Some(&1);
        match self {
            Self::Missing(_) => {}
            Self::Whole {
                kind,
                values,
                present,
            } if here(present) => {
                let bytes = values.get(row).copied().unwrap_or(0).to_le_bytes();
                let length = width_of(*kind);
                out.push(*kind);
                out.extend_from_slice(bytes.get(..length).unwrap_or_default());
            }
            Self::Double { values, present } if here(present) => {
                out.push(kind::DOUBLE);
                out.extend_from_slice(&values.get(row).copied().unwrap_or(0.0).to_le_bytes());
            }
            Self::Ids { values, present } if here(present) => {
                out.push(kind::OBJECT_ID);
                out.extend_from_slice(&values.get(row).copied().unwrap_or_default());
            }
            Self::Whole { .. } | Self::Double { .. } | Self::Ids { .. } => {}
            Self::Text { dictionary, codes } => {
                if let Some(text) = codes.get(row).and_then(|code| dictionary.get(*code)) {
                    out.push(kind::STRING);
                    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
                    out.extend_from_slice(text);
                    out.push(0);
                }
            }
            Self::Raw { bytes, ends } => {
                let start = row
                    .checked_sub(1)
                    .and_then(|row| ends.get(row))
                    .copied()
                    .unwrap_or(0);
                let end = ends.get(row).copied().unwrap_or(start);
                out.extend_from_slice(bytes.get(start..end).unwrap_or_default());
            }
        }
    }

    /// Type byte and length of the values, if every row has one and all are of the same type and length.
    pub fn fixed(&self) -> Option<(u8, usize)> {
        let fixed = match self {
            Self::Whole { kind, .. } => (*kind, width_of(*kind)),
            Self::Double { .. } => (kind::DOUBLE, 8),
            Self::Ids { .. } => (kind::OBJECT_ID, 12),
            Self::Missing(_) | Self::Text { .. } | Self::Raw { .. } => return None,
        };
        self.complete().then_some(fixed)
    }

    /// Whether every row has a value.
    pub fn complete(&self) -> bool {
        match self {
            Self::Missing(rows) => *rows == 0,
            Self::Whole { present, .. }
            | Self::Double { present, .. }
            | Self::Ids { present, .. } => !present.contains(&0),
            Self::Text { dictionary, codes } => {
                codes.iter().all(|code| (*code as usize) < dictionary.len())
            }
            Self::Raw { ends, .. } => {
                ends.first().is_none_or(|end| *end > 0)
                    && ends.windows(2).all(|pair| pair[0] < pair[1])
            }
        }
    }

    /// Writes the value of a row into a place of just its length. Only where values are [`Data::fixed`].
    #[inline]
    pub fn put(&self, row: usize, place: &mut [u8]) {
        match self {
            Self::Whole { values, .. } => {
                let value = values.get(row).copied().unwrap_or(0).to_le_bytes();
                match place.first_chunk_mut::<8>() {
                    Some(whole) => *whole = value,
                    None => place
                        .iter_mut()
                        .zip(value)
                        .for_each(|(to, from)| *to = from),
                }
            }
            Self::Double { values, .. } => {
                if let Some(whole) = place.first_chunk_mut() {
                    *whole = values.get(row).copied().unwrap_or(0.0).to_le_bytes();
                }
            }
            Self::Ids { values, .. } => {
                if let Some(whole) = place.first_chunk_mut() {
                    *whole = values.get(row).copied().unwrap_or_default();
                }
            }
            Self::Missing(_) | Self::Text { .. } | Self::Raw { .. } => {}
        }
    }

    /// Adds to each row's size what its element takes; `header` is what type and name take.
    pub fn add_sizes(&self, header: usize, sizes: &mut [usize]) {
        let add = |present: &[u8], width: usize, sizes: &mut [usize]| {
            for (size, present) in sizes.iter_mut().zip(present) {
                *size += usize::from(*present) * (header + width);
            }
        };
        match self {
            Self::Missing(_) => {}
            Self::Whole { kind, present, .. } => add(present, width_of(*kind), sizes),
            Self::Double { present, .. } => add(present, 8, sizes),
            Self::Ids { present, .. } => add(present, 12, sizes),
            Self::Text { dictionary, codes } => {
                for (size, code) in sizes.iter_mut().zip(codes) {
                    *size += dictionary
                        .get(*code)
                        .map_or(0, |text| header + 5 + text.len());
                }
            }
            Self::Raw { ends, .. } => {
                let mut start = 0;
                for (size, end) in sizes.iter_mut().zip(ends) {
                    // The type byte lies before the value here, and before the name there.
                    *size += if *end > start {
                        header + *end - start - 1
                    } else {
                        0
                    };
                    start = *end;
                }
            }
        }
    }
}

/// So many entries, and room for more: for all that a bucket says it has, unless it says more than any that was written here.
fn with_room<T: Copy>(entry: T, rows: usize, more: usize) -> Vec<T> {
    const ROOM_MAX: usize = 4096;
    let mut entries = Vec::with_capacity(rows + more.min(ROOM_MAX));
    entries.resize(rows, entry);
    entries
}

/// Bytes of a value that is held as a whole number.
fn width_of(type_byte: u8) -> usize {
    match type_byte {
        kind::BOOL => 1,
        kind::INT32 => 4,
        _ => 8,
    }
}
