//! Finds the first declaration of a table or key that a TOML text declares twice.

pub(super) struct TextLines<'a>(Vec<&'a str>);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redeclaration {
    /// Line index of the last table header before the second declaration, or of the declaration if it is a header itself.
    pub(super) header: Option<usize>,
    pub(super) is_header: bool,
    pub(super) key: String,
    pub(super) first: usize,
}

impl<'a> TextLines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(text.lines().collect())
    }

    pub(super) fn redeclaration(&self, line: usize) -> Option<Redeclaration> {
        let at = line.checked_sub(1).filter(|at| *at < self.0.len())?;
        let header = (0..=at).rev().find(|at| header_name(self.0[*at]).is_some());
        let named = header.and_then(|at| header_name(self.0[at]));
        if let (Some(name), true) = (&named, header == Some(at)) {
            let first = (0..at).find(|at| header_name(self.0[*at]).as_ref() == Some(name))?;
            return Some(Redeclaration {
                header,
                is_header: true,
                key: name.clone(),
                first: first + 1,
            });
        }
        let key = key_name(self.0[at])?;
        // If the header occurs twice, both occurrences belong to one table, which begins at the first.
        let begins = named.as_ref().map_or(0, |name| {
            (0..at)
                .find(|at| header_name(self.0[*at]).as_ref() == Some(name))
                .unwrap_or(0)
        });
        let first = (begins..at).find(|at| key_name(self.0[*at]).as_ref() == Some(&key));
        let full = named.map_or_else(|| key.clone(), |name| format!("{name}.{key}"));
        // If no earlier line sets the key, the table itself is declared twice (`[a.b]` after `a.b.c = 1`).
        Some(Redeclaration {
            header,
            is_header: false,
            key: full,
            first: first.unwrap_or(begins) + 1,
        })
    }
}

fn header_name(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix('[')?;
    let rest = rest.strip_prefix('[').unwrap_or(rest);
    Some(without_quotes(&rest[..rest.find(']')?]))
}

fn key_name(line: &str) -> Option<String> {
    let name = without_quotes(line.split_once('=')?.0);
    (!name.is_empty() && !name.starts_with('#')).then_some(name)
}

fn without_quotes(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\''))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_declaration_is_found_despite_blanks_and_quotes() {
        let lines = TextLines::of(
            "a = 1\n[views.v]\nkind = 1\n[ views . \"v\" ] # again\nkind = 2\na = 3\n",
        );
        let again = |line| lines.redeclaration(line).unwrap();
        assert_eq!(
            again(4),
            Redeclaration {
                header: Some(3),
                is_header: true,
                key: "views.v".to_owned(),
                first: 2
            }
        );
        assert_eq!(
            again(5),
            Redeclaration {
                header: Some(3),
                is_header: false,
                key: "views.v.kind".to_owned(),
                first: 3
            }
        );
        assert_eq!(lines.redeclaration(2), None);
        assert_eq!(
            (lines.redeclaration(0), lines.redeclaration(99)),
            (None, None)
        );
    }
}
