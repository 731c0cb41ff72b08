//! Planted bugs: parses `scripts/mutants.d/planted` and finds the texts in the sources. `tests/it/planted.rs` includes
//! this file, so that a change of the program that removes such a text fails at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A dropped rule.
#[derive(Debug)]
pub(crate) struct Bug {
    pub(crate) name: String,
    pub(crate) caught: Caught,
    /// The program's behavior without the rule.
    pub(crate) words: String,
    places: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caught {
    /// The first seeds of a world.
    Soon,
    Seeds,
    /// The exhaustive search.
    Search,
    /// None of these; the text states what would catch it.
    Unmet(String),
}

#[derive(Debug, Default)]
struct Place {
    package: String,
    function: String,
    find: String,
    with: String,
}

#[derive(Debug)]
pub(crate) struct BugPlace {
    /// The index of its bug.
    pub(crate) bug: usize,
    /// Path below the root.
    pub(crate) file: String,
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

/// Parses the declared bugs. The error names the first invalid line.
pub(crate) fn declared(text: &str) -> Result<Vec<Bug>, String> {
    let mut bugs: Vec<Bug> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let known = match line {
            _ if line.is_empty() || line.starts_with('#') => Some(()),
            _ if !line.starts_with(' ') => header(line).map(|bug| bugs.push(bug)),
            _ => bugs.last_mut().and_then(|bug| bug.take(line.trim_start())),
        };
        known.ok_or_else(|| format!("invalid line {} of the planted bugs: {line}", at + 1))?;
    }
    Ok(bugs)
}

fn header(line: &str) -> Option<Bug> {
    let (title, words) = line.split_once(": ")?;
    let (name, caught) = title.split_once(", ")?;
    let caught = match caught {
        "soon" => Caught::Soon,
        "seeds" => Caught::Seeds,
        "search" => Caught::Search,
        "unmet" => Caught::Unmet(String::new()),
        _ => return None,
    };
    Some(Bug {
        name: name.to_owned(),
        caught,
        words: words.to_owned(),
        places: Vec::new(),
    })
}

impl Bug {
    /// Parses an indented line.
    fn take(&mut self, line: &str) -> Option<()> {
        match (line.split_at_checked(2)?, &mut self.caught) {
            (("? ", words), Caught::Unmet(needs)) => words.clone_into(needs),
            (("- ", text), _) => add(&mut self.places.last_mut()?.find, text),
            (("+ ", text), _) => add(&mut self.places.last_mut()?.with, text),
            _ => {
                let (package, function) = line.split_once("::")?;
                self.places.push(Place {
                    package: package.to_owned(),
                    function: function.to_owned(),
                    ..Place::default()
                });
            }
        }
        Some(())
    }
}

fn add(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

/// Finds the places of these bugs. The error lists all places that are missing or ambiguous.
pub(crate) fn find(root: &Path, bugs: &[Bug]) -> Result<Vec<BugPlace>, Vec<String>> {
    let mut crates = BTreeMap::new();
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for (number, bug) in bugs.iter().enumerate() {
        if !bug.places.iter().any(|place| place.with.contains("BUG")) {
            wrong.push(format!("{}: no place has a switch", bug.name));
        }
        for place in &bug.places {
            let sources: &Vec<Source> = crates
                .entry(&place.package)
                .or_insert_with(|| Source::of_crate(root, &place.package));
            let hits: Vec<BugPlace> = sources
                .iter()
                .flat_map(|source| {
                    let ranges = source.hits(&place.find, &place.function).into_iter();
                    ranges.map(|range| BugPlace {
                        bug: number,
                        file: source.file.clone(),
                        range,
                        text: place.with.clone(),
                    })
                })
                .collect();
            if hits.len() == 1 {
                all.extend(hits);
            } else {
                wrong.push(format!(
                    "{}: {}::{} has this text {} times, expected once: {}",
                    bug.name,
                    place.package,
                    place.function,
                    hits.len(),
                    place.find
                ));
            }
        }
    }
    all.sort_by(|one, other| (&one.file, one.range.start).cmp(&(&other.file, other.range.start)));
    for pair in all.windows(2) {
        if let [one, other] = pair
            && one.file == other.file
            && one.range.end > other.range.start
        {
            wrong.push(format!(
                "{} and {} change the same text of {}",
                bugs[one.bug].name, bugs[other.bug].name, one.file
            ));
        }
    }
    if wrong.is_empty() {
        Ok(all)
    } else {
        Err(wrong)
    }
}

struct Source {
    file: String,
    text: String,
    bare: CompactText,
}

impl Source {
    fn of_crate(root: &Path, package: &str) -> Vec<Self> {
        let mut paths = Vec::new();
        collect(&root.join("crates").join(package).join("src"), &mut paths);
        paths.sort();
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).ok()?;
            let file = path.strip_prefix(root).ok()?;
            Some(Self {
                file: file.to_string_lossy().replace('\\', "/"),
                bare: CompactText::of(&text),
                text,
            })
        };
        paths.into_iter().filter_map(read).collect()
    }

    /// The places of this text in functions of this name.
    fn hits(&self, wanted: &str, function: &str) -> Vec<Range<usize>> {
        let wanted = CompactText::of(wanted).text;
        let hits = self.bare.text.match_indices(&wanted);
        let ranges = hits.map(|(at, hit)| self.bare.at[at]..self.bare.at[at + hit.len() - 1] + 1);
        ranges
            .filter(|range| self.function(range.start) == Some(function))
            .collect()
    }

    /// The last function that begins before a place.
    fn function(&self, at: usize) -> Option<&str> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let before = &self.text[..at];
        let begins = before
            .rmatch_indices("fn ")
            .find(|(begins, _)| !before[..*begins].ends_with(is_name));
        let name = &before[begins?.0 + 3..];
        name.split(|c| !is_name(c)).next()
    }
}

/// A text without white space and without commas before closing brackets, and the original position of each byte.
struct CompactText {
    text: String,
    at: Vec<usize>,
}

impl CompactText {
    fn of(text: &str) -> Self {
        let mut bare = Self {
            text: String::new(),
            at: Vec::new(),
        };
        for (at, letter) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            if matches!(letter, ')' | ']' | '}') && bare.text.ends_with(',') {
                bare.text.pop();
                bare.at.pop();
            }
            bare.text.push(letter);
            bare.at.extend(at..at + letter.len_utf8());
        }
        bare
    }
}

/// The sources below a folder, without test-only files.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "tests" {
            collect(&path, paths);
        } else if path.extension().is_some_and(|ending| ending == "rs") && name != "tests.rs" {
            paths.push(path);
        }
    }
}
