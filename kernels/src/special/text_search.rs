//! Searches of text: terms of which one must be there, terms and phrases that must or must not be.

use crate::keystring::Failure;
use crate::special::language::{without_diacritics, Language};
use crate::special::text_keys::{scores, Text, TextKeys};
use std::collections::{BTreeSet, HashMap};

pub struct TextSearch {
    /// What to look up in the index.
    pub terms: BTreeSet<String>,
    positive: BTreeSet<String>,
    pub negated: BTreeSet<String>,
    pub phrases: Vec<String>,
    pub negated_phrases: Vec<String>,
    case_sensitive: bool,
    diacritic_sensitive: bool,
}

impl TextSearch {
    pub fn parse(
        search: &str,
        language: &Language,
        case_sensitive: bool,
        diacritic_sensitive: bool,
    ) -> Self {
        let mut found = TextSearch {
            terms: BTreeSet::new(),
            positive: BTreeSet::new(),
            negated: BTreeSet::new(),
            phrases: Vec::new(),
            negated_phrases: Vec::new(),
            case_sensitive,
            diacritic_sensitive,
        };
        let mut negation = false;
        let mut phrase: Option<usize> = None;
        let mut after_space = true;
        let mut word: Option<usize> = None;
        for (at, sign) in search.char_indices().chain([(search.len(), ' ')]) {
            if !(sign.is_whitespace() || sign == '"' || (sign == '-' && word.is_none())) {
                word.get_or_insert(at);
                continue;
            }
            if let Some(start) = word.take() {
                if !(negation && phrase.is_some()) {
                    found.add(&search[start..at], language, negation);
                }
                if phrase.is_none() {
                    negation = false;
                }
                after_space = false;
            }
            match sign {
                '-' if phrase.is_none() && after_space && at < search.len() => negation = true,
                '"' => {
                    match phrase.take() {
                        None => phrase = Some(at + 1),
                        Some(start) => {
                            let text = search[start..at].to_string();
                            if negation {
                                found.negated_phrases.push(text);
                            } else {
                                found.phrases.push(text);
                            }
                            negation = false;
                        }
                    }
                    after_space = false;
                }
                _ => after_space = true,
            }
        }
        found
    }

    fn add(&mut self, written: &str, language: &Language, negated: bool) {
        for word in language.words(written) {
            let exact = language.term(word, self.case_sensitive, self.diacritic_sensitive);
            let Some(exact) = exact else {
                continue;
            };
            if negated {
                self.negated.insert(exact);
            } else {
                self.positive.insert(exact);
                self.terms.extend(language.term(word, false, false));
            }
        }
    }

    /// How well a document fits; None where it does not.
    pub fn score(&self, keys: &TextKeys, document: &[u8]) -> Result<Option<f64>, Failure> {
        let exact = self.case_sensitive || self.diacritic_sensitive;
        let mut all: HashMap<String, f64> = HashMap::new();
        let mut wanted = false;
        let mut refused = false;
        let mut phrases = vec![false; self.phrases.len()];
        keys.each_text(document, &mut |text| {
            scores(&text, &mut all);
            if exact || !self.negated.is_empty() {
                for word in text.language.words(text.text) {
                    let term =
                        text.language
                            .term(word, self.case_sensitive, self.diacritic_sensitive);
                    if let Some(term) = term {
                        wanted |= self.positive.contains(&term);
                        refused |= self.negated.contains(&term);
                    }
                }
            }
            self.see_phrases(&text, &mut phrases, &mut refused);
        })?;
        if refused || (exact && !wanted) || phrases.contains(&false) {
            return Ok(None);
        }
        let mut score = 0.0;
        let mut met = false;
        for term in &self.terms {
            if let Some(part) = all.get(term) {
                score += part;
                met = true;
            }
        }
        Ok(met.then_some(score))
    }

    fn see_phrases(&self, text: &Text<'_>, phrases: &mut [bool], refused: &mut bool) {
        if self.phrases.is_empty() && self.negated_phrases.is_empty() {
            return;
        }
        let written = self.comparable(text.text);
        for (phrase, seen) in self.phrases.iter().zip(phrases) {
            *seen |= written.contains(&self.comparable(phrase));
        }
        *refused |= self
            .negated_phrases
            .iter()
            .any(|phrase| written.contains(&self.comparable(phrase)));
    }

    fn comparable(&self, text: &str) -> String {
        let folded = if self.case_sensitive {
            text.to_string()
        } else {
            text.to_lowercase()
        };
        if self.diacritic_sensitive {
            folded
        } else {
            without_diacritics(&folded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TextSearch;
    use crate::special::language::language;

    fn parsed(search: &str) -> TextSearch {
        TextSearch::parse(search, language("english").expect("known"), false, false)
    }

    #[test]
    fn a_hyphen_negates_behind_a_space_alone() {
        let found = parsed("well-known -secret");
        assert_eq!(found.terms.iter().collect::<Vec<_>>(), ["known", "well"]);
        assert_eq!(found.negated.iter().collect::<Vec<_>>(), ["secret"]);
    }

    #[test]
    fn quotes_make_phrases() {
        let found = parsed("\"brown fox\" quick -\"red dog\"");
        assert_eq!(found.phrases, ["brown fox"]);
        assert_eq!(found.negated_phrases, ["red dog"]);
        assert_eq!(
            found.terms.iter().collect::<Vec<_>>(),
            ["brown", "fox", "quick"]
        );
        assert!(found.negated.is_empty());
    }
}
