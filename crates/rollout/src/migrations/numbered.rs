//! The numbered migration files, which are compiled in.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::MigrationError;
use evenkeel_model::TableName;

const FILES: [(&str, &str); 1] = [(
    "0001_control_tables.toml",
    include_str!("../../../../migrations/0001_control_tables.toml"),
)];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub number: String,
    pub name: String,
    pub description: String,
    pub tables: Vec<ControlTable>,
    /// The first 16 hex digits of the file's SHA-256. If a recorded migration has another checksum,
    /// the file has changed since.
    pub checksum: String,
}

/// A table in which evenkeel keeps its own state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlTable {
    pub name: TableName,
    pub on: AccountScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountScope {
    /// All accounts that have the source of a view or of an archive.
    Sources,
    Main,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrationFile {
    description: String,
    #[serde(default)]
    create_table: Vec<ControlTable>,
}

impl Migration {
    pub fn all() -> Result<Vec<Self>, MigrationError> {
        FILES
            .into_iter()
            .map(|(file, text)| Self::parse(file, text))
            .collect()
    }

    fn parse(file: &str, text: &str) -> Result<Self, MigrationError> {
        let wrong = |problem: String| MigrationError::File {
            file: file.to_owned(),
            problem,
        };
        let (number, name) = file
            .strip_suffix(".toml")
            .and_then(|stem| stem.split_once('_'))
            .filter(|(number, _)| number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| wrong("its name is not NNNN_name.toml".to_owned()))?;
        let parsed: MigrationFile =
            toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            number: number.to_owned(),
            name: name.to_owned(),
            description: parsed.description,
            tables: parsed.create_table,
            checksum: hex::encode(&Sha256::digest(text)[..8]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compiled_file_reads_and_they_are_numbered_without_a_gap() {
        let all = Migration::all().unwrap();
        let numbers: Vec<String> = all
            .iter()
            .map(|migration| migration.number.clone())
            .collect();
        let expected: Vec<String> = (1..=all.len()).map(|n| format!("{n:04}")).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn every_file_of_the_folder_is_compiled_in() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, FILES.map(|(file, _)| file.to_owned()));
    }

    #[test]
    fn a_mistake_in_a_file_names_the_file() {
        let error = Migration::parse("0002_more.toml", "description = 'x'\ncreate_tables = []")
            .unwrap_err();
        assert!(error.to_string().contains("0002_more.toml"), "{error}");
        assert!(Migration::parse("2_more.toml", "description = 'x'").is_err());
    }
}
