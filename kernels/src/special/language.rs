//! The languages of text search: where words end, which of them say nothing, and their stems.

use rust_stemmers::{Algorithm, Stemmer};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::UnicodeNormalization;

/// What a language does to words.
pub struct Language {
    stemmer: Option<Stemmer>,
    stop_words: HashSet<&'static str>,
    /// An apostrophe is part of a word.
    apostrophes: bool,
}

/// Code, name and algorithm of every language that has stems.
const LANGUAGES: [(&str, &str, Algorithm); 15] = [
    ("da", "danish", Algorithm::Danish),
    ("nl", "dutch", Algorithm::Dutch),
    ("en", "english", Algorithm::English),
    ("fi", "finnish", Algorithm::Finnish),
    ("fr", "french", Algorithm::French),
    ("de", "german", Algorithm::German),
    ("hu", "hungarian", Algorithm::Hungarian),
    ("it", "italian", Algorithm::Italian),
    ("nb", "norwegian", Algorithm::Norwegian),
    ("pt", "portuguese", Algorithm::Portuguese),
    ("ro", "romanian", Algorithm::Romanian),
    ("ru", "russian", Algorithm::Russian),
    ("es", "spanish", Algorithm::Spanish),
    ("sv", "swedish", Algorithm::Swedish),
    ("tr", "turkish", Algorithm::Turkish),
];

/// The language of a name or code, in any case; None for one that is unknown.
pub fn language(name: &str) -> Option<&'static Language> {
    static ALL: OnceLock<HashMap<&'static str, Language>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = HashMap::new();
        all.insert(
            "none",
            Language {
                stemmer: None,
                stop_words: HashSet::new(),
                apostrophes: false,
            },
        );
        for (code, name, algorithm) in LANGUAGES {
            for called in [code, name] {
                let listed = if code == "nb" { "no" } else { code };
                let words = stop_words::lookup(listed).unwrap_or_default();
                all.insert(
                    called,
                    Language {
                        stemmer: Some(Stemmer::create(algorithm)),
                        stop_words: words.iter().copied().collect(),
                        apostrophes: code == "en",
                    },
                );
            }
        }
        all
    });
    all.get(name.to_lowercase().as_str())
}

impl Language {
    /// The words of a text, as they are written.
    pub fn words<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let apostrophes = self.apostrophes;
        text.split(move |sign: char| is_delimiter(sign, apostrophes))
            .filter(|word| !word.is_empty())
    }

    /// The term that a word stands for; None where it says nothing.
    pub fn term(
        &self,
        word: &str,
        case_sensitive: bool,
        diacritic_sensitive: bool,
    ) -> Option<String> {
        let lower = word.to_lowercase();
        if self.stop_words.contains(lower.as_str()) {
            return None;
        }
        let written = if case_sensitive { word } else { lower.as_str() };
        let stem = match &self.stemmer {
            Some(stemmer) => stemmer.stem(written),
            None => written.into(),
        };
        Some(if diacritic_sensitive {
            stem.into_owned()
        } else {
            without_diacritics(&stem)
        })
    }
}

/// The same letters without marks on them.
pub fn without_diacritics(text: &str) -> String {
    if text.is_ascii() {
        return text.to_string();
    }
    text.nfd()
        .filter(|sign| !is_combining_mark(*sign))
        .collect()
}

/// Whether a character stands between words: spaces, signs of syntax, and what ends sentences.
fn is_delimiter(sign: char, apostrophes: bool) -> bool {
    if sign.is_ascii() {
        return !(sign.is_ascii_alphanumeric() || sign == '_' || (apostrophes && sign == '\''));
    }
    sign.is_whitespace()
        || sign.is_control()
        || matches!(
            u32::from(sign),
            0xA1..=0xA7 | 0xA9 | 0xAB | 0xAC | 0xAE | 0xB0 | 0xB1 | 0xB6 | 0xBB | 0xBF | 0xD7 | 0xF7
            | 0x37E | 0x387 | 0x589 | 0x60C | 0x61B | 0x61F | 0x6D4 | 0x964 | 0x965
            | 0x2010..=0x203E | 0x2041..=0x2053 | 0x2055..=0x205E | 0x2190..=0x245F | 0x2500..=0x2775
            | 0x2794..=0x2BFF | 0x2E00..=0x2E7F | 0x3001..=0x3003 | 0x3008..=0x3020 | 0x3030
            | 0xFD3E | 0xFD3F | 0xFE45 | 0xFE46 | 0xFF01 | 0xFF0C | 0xFF0E | 0xFF1A | 0xFF1B | 0xFF1F
        )
}

#[cfg(test)]
mod tests {
    use super::language;

    fn terms(name: &str, text: &str) -> Vec<String> {
        let language = language(name).expect("known");
        language
            .words(text)
            .filter_map(|word| language.term(word, false, false))
            .collect()
    }

    #[test]
    fn words_lose_endings_marks_and_case() {
        assert_eq!(
            terms("english", "The Running café, don't!"),
            ["run", "cafe"]
        );
        assert_eq!(terms("none", "The Running"), ["the", "running"]);
        assert_eq!(terms("DE", "die Häuser"), ["haus"]);
    }

    #[test]
    fn every_language_is_known_by_code_and_name() {
        for (code, name, _) in super::LANGUAGES {
            assert!(!language(code).expect("known").stop_words.is_empty());
            assert!(language(name).is_some());
        }
        assert!(language("klingon").is_none());
    }
}
