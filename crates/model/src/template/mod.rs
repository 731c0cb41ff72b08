//! Key templates: literal text and `{Property|filter:arg|…}`, rendered into a key for each primary.
//!
//! ```text
//!   "email_{PartitionKey}"          parse        [ Literal("email_"), Field(PartitionKey) ]
//!                                  ──────▶                 │  render(entity)
//!                                                          ▼
//!                                                 Some(Key("email_Sales")) | None | RenderError
//! ```
//!
//! - If a property is missing or empty, or its filters leave it empty, rendering returns `None`, and the primary has no item there: the
//!   view is sparse. An empty PartitionKey or RowKey counts as empty only if filters have emptied it.
//! - In values, `%` and every character that Azure forbids in keys are escaped as `%XX` of their UTF-8 bytes. The escaping is injective
//!   and reversible ([`escape()`], [`unescape`]). The escaping does not preserve order, because a forbidden character sorts like a `%`.
//!   Templates that must match keys of other programs leave valid values unchanged ([`Escaping`]).
//! - Without a filter, a String renders unchanged, Int32 and Int64 in decimal, Boolean as `true` or `false`, Guid in lower case with
//!   dashes, and DateTime as `2026-11-20T15:00:00.0000000Z` (always seven digits, so that texts sort by time). Double and Binary are
//!   permanent errors: a Double has many texts, and a Binary has none.
//! - `lower`, `upper`, `trim`, `nfc`, `slug`, `hash` and `bucket` work on the text that a value has without a filter, and so do the
//!   cutting filters `after`, `before`, `after_last` and `before_last`. `pad` takes Int32, Int64 and text of ASCII digits. `sortable`
//!   takes any number except NaN, and the text of a number. `date` and `inverted_ticks` take DateTime and text in RFC 3339.
//! - `{{` and `}}` are literal braces.
//!
//! Sizes are bounded, and no text causes a panic.

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

pub use cover::{Distinction, keys_determine};
pub use each::ListText;
pub use escape::{Escaping, escape, unescape};
pub use filter::KeyFilter;
pub use number::{Number, SORTABLE_DIGITS, is_decimal, sortable};
pub use ordered::{INVERTED_TICKS_DIGITS, from_inverted_ticks, inverted_ticks, pad, unpad};
pub use parse::{Field, Template, TemplateError, TemplatePart, filter_names};
pub use render::RenderError;
pub use spread::Crowding;
pub use zone::DateFormat;
