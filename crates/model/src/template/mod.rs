//! Key templates: literal text and `{Property|filter:arg|…}`, rendered into a key for each primary.
//!
//! ```text
//!   "email_{PartitionKey}"          parse        [ Literal("email_"), Field(PartitionKey) ]
//!                                  ──────▶                 │  render(entity)
//!                                                          ▼
//!                                                 Some(Key("email_Sales")) | None | RenderError
//! ```
//!
//! - A property that is missing or empty, also one that its filters leave empty, means that this primary
//!   has no such item: `None`, a sparse view. This holds for an empty PartitionKey or RowKey too.
//! - A character that Azure forbids in keys is escaped as `%XX` of its UTF-8 bytes, `%` included, in values only. The
//!   escaping is injective and reversible ([`escape()`], [`unescape`]). It does not preserve order: a value
//!   with a forbidden character sorts where its `%` does. Templates that have to meet keys of others leave a value that is legal in
//!   keys as it is ([`Escaping`]).
//! - Without a filter, String renders as it is, Int32 and Int64 in decimal, Boolean as `true` or `false`, Guid
//!   in lower case with dashes, DateTime as `2026-11-20T15:00:00.0000000Z` (always seven digits, so that texts sort as moments). Double
//!   and Binary are permanent errors: a Double has many texts, a Binary has none.
//! - `lower`, `upper`, `trim`, `nfc`, `slug`, `hash` and `bucket` work on that text, and so do those that cut it: `after`, `before`,
//!   `after_last` and `before_last`. `pad` takes Int32, Int64 and text of
//!   ASCII digits, `sortable` any number but NaN and text of one. `date` and `inverted_ticks` take DateTime and text in RFC 3339.
//! - `{{` and `}}` are literal braces.
//!
//! Everything is bounded, and nothing panics on any text.

mod cover;
mod each;
mod escape;
mod filter;
mod number;
mod ordered;
mod parse;
mod render;
mod spread;
#[cfg(test)]
mod tests;
mod zone;

pub use cover::{Apart, keys_tell};
pub use each::ListText;
pub use escape::{Escaping, escape, unescape};
pub use filter::KeyFilter;
pub use number::{Number, SORTABLE_DIGITS, is_decimal, sortable};
pub use ordered::{INVERTED_TICKS_DIGITS, from_inverted_ticks, inverted_ticks, pad, unpad};
pub use parse::{Field, Template, TemplateError, TemplatePart, filter_names};
pub use render::RenderError;
pub use spread::Crowding;
pub use zone::DateFormat;
