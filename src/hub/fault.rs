//! The faults of requests, and the words in which messages tell them with a way out.

use std::time::Duration;

use anyhow::{Error, anyhow};
use ureq::http::Uri;

/// The reason for which a request brought nothing.
pub enum Fault {
    /// It may succeed if it is repeated, after the pause that the server asks for.
    Passing {
        why: String,
        pause: Option<Duration>,
    },
    Lasting(Error),
}

/// The thing that is downloaded, as messages name it, and the page that states its terms.
pub struct Subject {
    pub name: String,
    pub page: String,
    pub ways: &'static Ways,
}

/// The ways out that messages name.
#[derive(Debug, PartialEq)]
pub struct Ways {
    /// The variable that names a mirror.
    pub mirror: &'static str,
    /// The words by which a user names another folder.
    pub folder: &'static str,
    /// Whether the server is the Hub, whose token opens what is closed. No other server is sent it.
    pub takes_token: bool,
}

/// The ways out of the Hub's checkpoints and data sets.
pub static OF_HUB: Ways = Ways { mirror: "HF_ENDPOINT", folder: "set HF_HOME to a folder", takes_token: true };

/// The facts about an answer, beside its status, by which its fault is named.
pub struct Told<'a> {
    /// The Hub's word for a fault; empty if there is none.
    pub code: &'a str,
    /// The pause that the server asks for.
    pub pause: Option<Duration>,
    /// Whether a token was sent.
    pub had_token: bool,
}

impl Subject {
    /// Returns the fault that the status of an answer is; `None` if the answer has content.
    pub(super) fn fault_of_status(&self, at: &Uri, status: u16, told: &Told) -> Option<Fault> {
        let (Subject { name, page, ways }, host) = (self, at.host().unwrap_or_default());
        let token = if told.had_token { "the token that was sent may not read it" } else { "no token was sent" };
        let why = match (status, told.code) {
            (200 | 206 | 416, _) => return None,
            (_, "GatedRepo") => format!(
                "{name}: is gated, and {token} ({status}): accept its terms at {page}, and set HF_TOKEN to a token of that account"
            ),
            (_, "RevisionNotFound") => format!("{name}: has no such revision: see the branches and tags at {page}"),
            (400..=407 | 409..=424 | 426..=428, _) if !ways.takes_token => format!(
                "{name}: {host} answers {status} for {}: get it as {page} says, or name a mirror by {}",
                at.path(),
                ways.mirror
            ),
            (401, _) => format!(
                "{name}: {host} answers 401, and {token}: there is no repository of this name, or it is private: check the name, \
                 or set HF_TOKEN to a token that may read it"
            ),
            (403, _) => format!(
                "{name}: {host} answers 403, and {token}: set HF_TOKEN to a token that may read it, or accept its terms at {page}"
            ),
            (404, _) => format!("{name}: {host} has no {}: check the name at {page}", at.path()),
            (408 | 425 | 429 | 500..=599, _) => {
                return Some(Fault::Passing { why: format!("answers {status}"), pause: told.pause });
            }
            _ => format!("{name}: {host} answers {status}: is {} a mirror?", ways.mirror),
        };
        Some(lasting(Error::msg(why)))
    }

    /// Returns the fault of a request that got no answer.
    pub(super) fn fault_of(&self, at: &Uri, error: &ureq::Error) -> Fault {
        let (shown, host) = (&self.name, at.host().unwrap_or_default());
        // The system's resolver has no kind of error of its own.
        let is_lookup = |error: &std::io::Error| error.to_string().contains("lookup address");
        match error {
            ureq::Error::HostNotFound => self.no_way_to(host),
            ureq::Error::Io(error) if is_lookup(error) => self.no_way_to(host),
            ureq::Error::Rustls(_) | ureq::Error::Tls(_) | ureq::Error::InvalidProxyUrl | ureq::Error::BadUri(_) => {
                lasting(anyhow!(
                    "{shown}: {host}: {error}: SSL_CERT_FILE names certificates to trust, HTTPS_PROXY a proxy"
                ))
            }
            ureq::Error::Timeout(_) => passing("does not answer"),
            _ => passing(&format!("cannot be reached ({error})")),
        }
    }

    fn no_way_to(&self, host: &str) -> Fault {
        lasting(anyhow!(
            "{}: there is no way to {host}: connect to the network, set HTTPS_PROXY or {}{}",
            self.name,
            self.ways.mirror,
            if self.ways.takes_token { ", or work with what is in the cache by --offline" } else { "" }
        ))
    }
}

pub(super) fn passing(why: &str) -> Fault {
    Fault::Passing { why: why.to_string(), pause: None }
}

pub(super) fn lasting(error: Error) -> Fault {
    Fault::Lasting(error)
}

/// Returns an address without what follows `?`, which may be a signature.
pub(super) fn plain(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}
