//! The challenge of a registry that requires a token: `WWW-Authenticate: Bearer realm="…",service="…",scope="…"`.

/// Where a token is requested.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Challenge {
    realm: String,
    service: Option<String>,
    scope: Option<String>,
}

impl Challenge {
    /// Parses the header; `None` for schemes other than Bearer.
    pub fn parse(header: &str) -> Option<Challenge> {
        let (scheme, rest) = header.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let value =
            |name: &str| pairs(rest).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        Some(Challenge { realm: value("realm")?, service: value("service"), scope: value("scope") })
    }

    /// The URL that returns the token.
    pub fn url(&self) -> String {
        let mut url = self.realm.clone();
        for (name, value) in [("service", &self.service), ("scope", &self.scope)] {
            if let Some(value) = value {
                url.push(if url.contains('?') { '&' } else { '?' });
                url += &format!("{name}={}", encoded(value));
            }
        }
        url
    }
}

/// `a="b",c=d` as pairs; commas in quotes do not separate.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let mut is_quoted = false;
    let separated = text.split(move |c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    separated.filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        Some((key.trim().into(), value.trim().trim_matches('"').into()))
    })
}

/// A text as a part of a URL, slashes too.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if is_plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_becomes_the_url_of_the_token() {
        let header =
            r#"Bearer realm="https://a.example/token",service="reg",scope="repository:me/tiny:pull,push""#;
        let url = Challenge::parse(header).unwrap().url();
        assert_eq!(url, "https://a.example/token?service=reg&scope=repository%3Ame%2Ftiny%3Apull%2Cpush");
        assert_eq!(
            Challenge::parse("bearer realm=http://x/t?a=1, service=s").unwrap().url(),
            "http://x/t?a=1&service=s"
        );
        assert_eq!(Challenge::parse(r#"Basic realm="x""#), None);
        assert_eq!(Challenge::parse(r#"Bearer service="x""#), None);
    }
}
