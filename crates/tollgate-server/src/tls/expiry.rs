//! When a certificate expires, of which rustls tells a server nothing about its own.

/// The tags of DER that lead there.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the second since 1970 after which a certificate in DER is not valid any more, if it says
/// so in a form that is understood.
pub(super) fn expiry(certificate: &[u8]) -> Option<i64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let (tag, _, after_version) = element(signed)?;
    let serial = if tag == VERSION { after_version } else { signed };
    let (_, _, algorithm) = element(serial)?;
    let (_, _, issuer) = element(algorithm)?;
    let (_, _, validity) = element(issuer)?;
    let (tag, validity, _) = element(validity)?;
    let (_, _, not_after) = element(validity)?;
    let (kind, text, _) = element(not_after)?;
    (tag == SEQUENCE).then(|| seconds(kind, text)).flatten()
}

/// Takes an element off: its tag, its content and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Reads `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn seconds(kind: u8, text: &[u8]) -> Option<i64> {
    let (digits, zone) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if zone != b"Z" || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (kind, digits.len()) {
        (UTC_TIME, 12) => match number(&digits[..2]) {
            year @ 0..50 => (2_000 + year, &digits[2..]),
            year => (1_900 + year, &digits[2..]),
        },
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let part = |index: usize| number(&rest[2 * index..2 * index + 2]);
    let (month, day) = (part(0), part(1));
    let day = (1..=12).contains(&month).then(|| days(year, month, day))?;
    Some(day * 86_400 + part(2) * 3_600 + part(3) * 60 + part(4))
}

/// Counts the days since 1970-01-01 in the Gregorian calendar.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_tells_when_it_expires() {
        for (year, expected) in [(1999, 946_598_400), (2049, 2_524_521_600), (2050, 2_556_057_600)]
        {
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(1990, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            assert_eq!(expiry(certificate.der()), Some(expected), "{year}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_expiry() {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        for length in 0..120 {
            assert_eq!(expiry(&der[..length]), None, "{length}");
        }
        assert_eq!(expiry(&[0xff; 64]), None);
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        for (date, expected) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days(date.0, date.1, date.2), expected, "{date:?}");
        }
    }
}
