//! Replays the corpora of the fuzz targets: inputs that a fuzzer found, and inputs that a person wrote. Each input is also tried with some bytes
//! changed. This does not replace fuzzing, but it detects broken fuzz targets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an unreadable corpus fails the test"
)]

#[allow(unreachable_pub, reason = "the fuzz targets name it from outside")]
#[path = "../../fuzz/entries.rs"]
mod entries;

use std::fs;
use std::path::Path;

use evenkeel_storage::Rng as _;
use evenkeel_storage::system::SeededRng;

const CHANGED: usize = 200;

fn changed(input: &[u8], rng: &SeededRng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=rng.next_u64() % 4 {
        let at = usize::try_from(rng.next_u64()).unwrap() % (bytes.len() + 1);
        match rng.next_u64() % 3 {
            0 if at < bytes.len() => bytes[at] = rng.next_u64().to_le_bytes()[0],
            1 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.insert(
                at,
                b"\"{}[],:\\0x~%/|\n"[usize::try_from(rng.next_u64() % 15).unwrap()],
            ),
        }
    }
    bytes
}

#[test]
fn whatever_the_bytes_nothing_panics_and_what_can_be_read_survives() {
    for (name, target) in entries::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(name);
        let mut files: Vec<_> = fs::read_dir(&folder)
            .expect("a corpus")
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        assert!(files.len() >= 3, "{} has too few inputs", folder.display());
        let rng = SeededRng::new(1);
        for file in files {
            let input = fs::read(&file).unwrap();
            target(&input);
            let copies = if *name == "configuration" {
                CHANGED / 10
            } else {
                CHANGED
            };
            for _ in 0..copies {
                target(&changed(&input, &rng));
            }
        }
    }
}
