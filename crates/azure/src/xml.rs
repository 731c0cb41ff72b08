//! Extracts the text of single elements from XML.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

/// The text of the first element with this name at any depth. Case and prefix are ignored.
pub(super) fn text_of(xml: &str, name: &str) -> Option<String> {
    texts_of(xml, [name]).map(|[text]| text)
}

/// The texts of the first elements with these names, read in one pass; `None` if one is missing.
pub(super) fn texts_of<const N: usize>(xml: &str, names: [&str; N]) -> Option<[String; N]> {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_end_names = false;
    let mut found = [const { None }; N];
    let mut inside: Option<(usize, String)> = None;
    while found.iter().any(Option::is_none) {
        let wanted =
            |tag: &str| (0..N).find(|at| found[*at].is_none() && is_named(tag, names[*at]));
        match (reader.read_event().ok()?, &mut inside) {
            (Event::Start(tag), None) => {
                inside = wanted(tag.local_name().as_ref()).map(|at| (at, String::new()));
            }
            (Event::Empty(tag), None) => {
                if let Some(at) = wanted(tag.local_name().as_ref()) {
                    found[at] = Some(String::new());
                }
            }
            (Event::Text(text), Some((_, inside))) => inside.push_str(&text),
            (Event::GeneralRef(reference), Some((_, inside))) => {
                inside.push_str(&referred(&reference)?);
            }
            (Event::CData(text), Some((_, inside))) => inside.push_str(&text),
            (Event::End(tag), Some((at, _))) if is_named(tag.local_name().as_ref(), names[*at]) => {
                if let Some((at, text)) = inside.take() {
                    found[at] = Some(text);
                }
            }
            (Event::Eof, _) => return None,
            _ => {}
        }
    }
    let texts: Vec<String> = found.into_iter().flatten().collect();
    texts.try_into().ok()
}

fn is_named(tag: &str, name: &str) -> bool {
    tag.eq_ignore_ascii_case(name)
}

/// Resolves a character reference (`&#xD;`) or one of XML's five entities (`&amp;`). The services declare no others.
pub(super) fn referred(reference: &BytesRef<'_>) -> Option<String> {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => Some(character.to_string()),
        Ok(None) => resolve_predefined_entity(reference).map(str::to_owned),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_is_found() {
        let xml = "\u{feff}<?xml version=\"1.0\"?><error xmlns=\"x\"><code>A &amp; B</code><message xml:lang=\"en\">m</message><Empty/></error>";
        assert_eq!(text_of(xml, "Code").as_deref(), Some("A & B"));
        assert_eq!(text_of(xml, "message").as_deref(), Some("m"));
        assert_eq!(text_of(xml, "Empty").as_deref(), Some(""));
        assert_eq!(text_of(xml, "Other"), None);
        assert_eq!(
            texts_of(xml, ["Message", "Code"]),
            Some(["m", "A & B"].map(str::to_owned))
        );
        assert_eq!(texts_of(xml, ["Code", "Other"]), None);
        assert_eq!(text_of("<a><Code>cut", "Code"), None);
        assert_eq!(text_of("no xml", "Code"), None);
    }
}
