//! Orders of strings by language: keys that compare as bytes the way Unicode's collation compares the strings.

use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The order of a locale with its options.
#[pyclass(frozen)]
pub struct Collator {
    collator: CollatorBorrowed<'static>,
}

fn strength_of(number: u8) -> PyResult<Strength> {
    Ok(match number {
        1 => Strength::Primary,
        2 => Strength::Secondary,
        3 => Strength::Tertiary,
        4 => Strength::Quaternary,
        5 => Strength::Identical,
        _ => return Err(PyValueError::new_err("a strength is from 1 to 5")),
    })
}

#[pymethods]
impl Collator {
    /// The order of a BCP 47 locale.
    #[new]
    #[pyo3(signature = (locale, *, strength, case_level, case_first, numeric, shifted, shifts_punctuation))]
    fn new(
        locale: &str,
        strength: u8,
        case_level: bool,
        case_first: &str,
        numeric: bool,
        shifted: bool,
        shifts_punctuation: bool,
    ) -> PyResult<Self> {
        let parsed: Locale = locale
            .parse()
            .map_err(|error| PyValueError::new_err(format!("{locale}: {error}")))?;
        let mut preferences = CollatorPreferences::from(&parsed);
        preferences.case_first = Some(match case_first {
            "upper" => CollationCaseFirst::Upper,
            "lower" => CollationCaseFirst::Lower,
            _ => CollationCaseFirst::False,
        });
        preferences.numeric_ordering = Some(if numeric {
            CollationNumericOrdering::True
        } else {
            CollationNumericOrdering::False
        });
        let mut options = CollatorOptions::default();
        options.strength = Some(strength_of(strength)?);
        options.case_level = Some(if case_level {
            CaseLevel::On
        } else {
            CaseLevel::Off
        });
        options.alternate_handling = Some(if shifted {
            AlternateHandling::Shifted
        } else {
            AlternateHandling::NonIgnorable
        });
        options.max_variable = Some(if shifts_punctuation {
            MaxVariable::Punctuation
        } else {
            MaxVariable::Space
        });
        CollatorBorrowed::try_new(preferences, options)
            .map(|collator| Collator { collator })
            .map_err(|error| PyValueError::new_err(format!("{locale}: {error}")))
    }

    /// Bytes that sort as the string does.
    fn key<'py>(&self, py: Python<'py>, string: &str) -> Bound<'py, PyBytes> {
        let mut key = Vec::with_capacity(string.len() * 2 + 4);
        let Ok(()) = self.collator.write_sort_key_to(string, &mut key);
        PyBytes::new(py, &key)
    }
}
