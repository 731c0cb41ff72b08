use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

pub(crate) fn gzip(json: &str) -> String {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(json.as_bytes()).unwrap();
    BASE64.encode(gzip.finish().unwrap())
}

/// Random text, which gzip cannot shrink below the limit.
pub(crate) fn random_text(length: usize) -> String {
    let mut state = 1_u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(
            b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"
                [usize::try_from(state >> 58).unwrap()],
        )
    })
    .take(length)
    .collect()
}

/// The largest message with these fields. Even if compressed, it has no room for a note.
pub(crate) fn full(fields: &str) -> String {
    let compressed = |length| gzip(&format!(r#"{{{fields},"x":"{}"}}"#, random_text(length)));
    (0..1_000)
        .map(|step| compressed(66_000 - 16 * step))
        .find(|text| text.len() <= 65_536)
        .unwrap()
}
