//! Keys of text indexes: the terms of a document's texts; and how much of a document a term makes.

use crate::elements::{self, elements, find, kind, Element};
use crate::keystring::{append_text, capped, Failure};
use crate::special::language::{language, Language};
use crate::special::paths::Plain;
use std::collections::{BTreeSet, HashMap};

const ARRAY_BESIDE_TEXT: i32 = 16675;
const LANGUAGE_NO_STRING: i32 = 17261;
const LANGUAGE_UNKNOWN: i32 = 17262;
const DEPTH_MAX: usize = 250;

pub struct TextKeys {
    pub before: Vec<Plain>,
    pub behind: Vec<Plain>,
    /// Paths and how much a term below them weighs.
    pub weights: HashMap<Vec<u8>, f64>,
    /// The weight of all other paths, where the index takes them in.
    pub others: Option<f64>,
    pub default_language: &'static Language,
    pub language_field: Vec<u8>,
}

/// One text of a document.
pub struct Text<'t> {
    pub text: &'t str,
    pub weight: f64,
    pub language: &'static Language,
}

impl TextKeys {
    /// The different keys of a document, in order.
    pub fn keys(&self, document: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut terms = BTreeSet::new();
        self.each_text(document, &mut |text| {
            let words = text.language.words(text.text);
            terms.extend(words.filter_map(|word| text.language.term(word, false, false)));
        })?;
        let (before, _) = (
            plain(&self.before, document)?,
            plain(&self.behind, document)?,
        );
        let mut keys: Vec<Vec<u8>> = terms
            .iter()
            .map(|term| {
                let mut key = before.clone();
                append_text(&mut key, term.as_bytes());
                capped(key)
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Call a function with every text that the index takes in.
    pub fn each_text<'d>(
        &self,
        document: &'d [u8],
        see: &mut dyn FnMut(Text<'d>),
    ) -> Result<(), Failure> {
        self.object(document, b"", self.default_language, see, 0)
    }

    fn object<'d>(
        &self,
        object: &'d [u8],
        prefix: &[u8],
        outer: &'static Language,
        see: &mut dyn FnMut(Text<'d>),
        depth: usize,
    ) -> Result<(), Failure> {
        if depth > DEPTH_MAX {
            return Err(Failure::Malformed("objects lie too deep in each other"));
        }
        let language = self.language_of(object, outer)?;
        for field in elements(object)? {
            let field = field?;
            if self.others.is_some() && field.name == self.language_field {
                continue;
            }
            let mut path = prefix.to_vec();
            if !path.is_empty() {
                path.push(b'.');
            }
            path.extend_from_slice(field.name);
            self.value(field, &path, language, see, depth)?;
        }
        Ok(())
    }

    fn value<'d>(
        &self,
        element: Element<'d>,
        path: &[u8],
        language: &'static Language,
        see: &mut dyn FnMut(Text<'d>),
        depth: usize,
    ) -> Result<(), Failure> {
        match element.kind {
            kind::STRING => {
                let Some(weight) = self.weights.get(path).copied().or(self.others) else {
                    return Ok(());
                };
                let text = std::str::from_utf8(elements::string(element.value)?)
                    .map_err(|_| Failure::Malformed("a string is not UTF-8"))?;
                see(Text {
                    text,
                    weight,
                    language,
                });
            }
            kind::OBJECT => self.object(element.value, path, language, see, depth + 1)?,
            kind::ARRAY => {
                for item in elements(element.value)? {
                    let item = item?;
                    if depth < DEPTH_MAX {
                        self.value(item, path, language, see, depth + 1)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn language_of(
        &self,
        object: &[u8],
        outer: &'static Language,
    ) -> Result<&'static Language, Failure> {
        let Some(found) = find(object, &self.language_field)? else {
            return Ok(outer);
        };
        if found.kind != kind::STRING {
            return Err(Failure::Refused(
                LANGUAGE_NO_STRING,
                "found language override field in document with non-string type".into(),
            ));
        }
        let name = String::from_utf8_lossy(elements::string(found.value)?).into_owned();
        language(&name).ok_or_else(|| {
            Failure::Refused(
                LANGUAGE_UNKNOWN,
                format!("language override unsupported: {name}"),
            )
        })
    }
}

fn plain(fields: &[Plain], document: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut key = Vec::new();
    for field in fields {
        key.extend(field.only_key(
            document,
            None,
            ARRAY_BESIDE_TEXT,
            "cannot have a multi-key as a prefix to a text index",
        )?);
    }
    Ok(key)
}

/// How much each term makes of a text: more for more occurrences, less among many other words.
pub fn scores(text: &Text<'_>, into: &mut HashMap<String, f64>) {
    struct Seen {
        count: f64,
        frequency: f64,
        halving: f64,
    }
    let mut words = 0.0;
    let mut seen: HashMap<String, Seen> = HashMap::new();
    for word in text.language.words(text.text) {
        let Some(term) = text.language.term(word, false, false) else {
            continue;
        };
        let found = seen.entry(term).or_insert(Seen {
            count: 0.0,
            frequency: 0.0,
            halving: 1.0,
        });
        found.frequency += 1.0 / found.halving;
        found.halving *= 2.0;
        found.count += 1.0;
        words += 1.0;
    }
    for (term, found) in seen {
        let share = 0.5 * found.count / words + 0.5;
        let whole = text.text.len() == term.len() && text.text.eq_ignore_ascii_case(&term);
        let boost = if whole { 1.1 } else { 1.0 };
        *into.entry(term).or_insert(0.0) += text.weight * found.frequency * share * boost;
    }
}
