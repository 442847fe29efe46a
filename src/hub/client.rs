//! Requests to the Hub: redirects by hand, so that a token goes to the endpoint's own host alone, with limits of time and
//! size, and with repetitions of what may pass.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use ureq::http::{HeaderMap, Request, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Proxy};

use super::fault::{Fault, Subject, Told, lasting, passing, plain};
use super::settings::{Settings, Token};
use crate::base::files::read_file;

/// The longest pause between two tries, also where the server asks for one; a longer one is the user's to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The bytes of new data after which a transfer counts as one that makes progress.
const PROGRESS: u64 = 1 << 20;

const MOST_REDIRECTS: usize = 5;

/// The largest list of a repository's files, in bytes.
const LARGEST_LIST: u64 = 32 << 20;

/// The ways in which content may be packed, as headers name them.
const PACKINGS: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "zstd"];

/// The answer to a request: its status is 200, 206, 416 or, where it leads to another host and is not followed, 302.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Body,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The endpoints that did not answer in this process, as often as they were asked.
static SILENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn silent() -> MutexGuard<'static, BTreeSet<String>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether an endpoint did not answer in this process.
pub fn is_silent(endpoint: &str) -> bool {
    silent().contains(endpoint)
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq)]
pub enum Ask {
    /// The headers of what lies at the endpoint itself.
    Headers,
    /// The content, wherever it lies, from this byte on.
    Content { from: u64 },
}

/// A client of one endpoint.
pub struct Client<'a> {
    pub settings: &'a Settings,
    subject: Subject,
    agent: Agent,
    endpoint: Uri,
    /// The same as it was given.
    address: String,
}

impl Client<'_> {
    /// Returns a client for an address of the Hub, a mirror or another server.
    ///
    /// # Errors
    /// Fails if the address is none, or if the certificates that the environment names cannot be read.
    pub fn new<'a>(settings: &'a Settings, endpoint: &str, subject: Subject) -> Result<Client<'a>> {
        let mirror = subject.ways.mirror;
        let rule = || format!("{mirror} = {endpoint}: must be an address that begins with https:// or http://");
        let uri: Uri = endpoint.parse().with_context(rule)?;
        anyhow::ensure!(matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some(), rule());
        let patience = Some(settings.patience);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(patience)
            .timeout_connect(patience)
            .timeout_recv_response(patience)
            .timeout_per_read(patience)
            .timeout_per_write(patience)
            .tls_config(TlsConfig::builder().root_certs(certificates()?).build())
            .proxy(if is_loopback(&uri) { None } else { Proxy::try_from_env() })
            .user_agent(concat!("bella/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Client { settings, subject, agent, endpoint: uri, address: endpoint.to_string() })
    }

    /// Returns a list of the Hub's.
    ///
    /// # Errors
    /// Fails if there is none, or if it is no JSON of a possible size.
    pub fn json(&self, url: &str) -> Result<Value> {
        self.persist(
            url,
            || 0,
            || {
                let answer = self.ask(url, Ask::Content { from: 0 })?;
                let mut text = String::new();
                let read = answer.body.into_with_config().limit(LARGEST_LIST).reader().read_to_string(&mut text);
                read.map_err(|error| passing(&format!("the answer broke off: {error}")))?;
                serde_json::from_str(&text).map_err(|error| {
                    let shown = &self.subject.name;
                    Fault::Lasting(anyhow!(
                        "{shown}: {} answers with no JSON ({error}): is HF_ENDPOINT one of the Hub?",
                        plain(url)
                    ))
                })
            },
        )
    }

    /// Repeats what may pass, with pauses that double. `done` tells the bytes that are there so far: what makes progress
    /// is tried again as often as the first time.
    ///
    /// # Errors
    /// Fails with the last fault.
    pub fn persist<T>(
        &self,
        url: &str,
        done: impl Fn() -> u64,
        mut step: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T> {
        let (mut tries, mut most) = (0, done());
        loop {
            let (why, asked) = match step() {
                Ok(value) => return Ok(value),
                Err(Fault::Lasting(error)) => return Err(error),
                Err(Fault::Passing { why, pause }) => (why, pause),
            };
            let now = done();
            // What comes a second time is no progress.
            if now >= most + PROGRESS {
                tries = 0;
            }
            most = most.max(now);
            tries += 1;
            let pause = asked.unwrap_or(self.settings.pause * (1 << (tries - 1)));
            let (shown, server) = (&self.subject.name, plain(url));
            anyhow::ensure!(
                pause <= LONGEST_PAUSE,
                "{shown}: {server}: {why}, and asks to wait {} s: try again then{}",
                pause.as_secs(),
                if self.subject.ways.takes_token { "; with HF_TOKEN the limits are wider" } else { "" }
            );
            if tries >= self.settings.tries {
                silent().insert(self.address.clone());
            }
            anyhow::ensure!(
                tries < self.settings.tries,
                "{shown}: {server}: {why}{}: try again later (what has come is kept), or name a mirror by {}",
                if tries > 1 { format!(", {tries} times") } else { String::new() },
                self.subject.ways.mirror
            );
            tracing::debug!("{shown}: {why}; again in {} s", pause.as_secs_f32());
            sleep(pause);
        }
    }

    /// Sends a request once, and follows redirects: those of [`Ask::Headers`] on the endpoint's own host alone, and not past the answer that
    /// says what a large file is. A mirror may send on to itself, where the file's bytes come without their hash.
    pub fn ask(&self, url: &str, ask: Ask) -> Result<Answer, Fault> {
        let mut at: Uri = url.parse().map_err(|error| lasting(anyhow!("{}: no address: {error}", plain(url))))?;
        for _ in 0..=MOST_REDIRECTS {
            self.check_scheme(&at)?;
            let response =
                self.agent.run(self.request(&at, ask)?).map_err(|error| self.subject.fault_of(&at, &error))?;
            let (parts, body) = response.into_parts();
            let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, body };
            if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
                return self.unpacked(&at, self.checked(&at, answer)?, ask);
            }
            let next = answer.header("location").and_then(|to| resolved(&at, to)).ok_or_else(|| {
                lasting(anyhow!("{}: {}: a redirect that leads nowhere", self.subject.name, plain(&at.to_string())))
            })?;
            let told = answer.header("x-linked-etag").is_some();
            if ask == Ask::Headers && (told || !same_place(&next, &self.endpoint)) {
                return Ok(answer);
            }
            at = next;
        }
        Err(lasting(anyhow!("{}: {}: more than {MOST_REDIRECTS} redirects", self.subject.name, plain(url))))
    }

    /// Returns the user's token, where this client is for the server that it belongs to.
    fn token(&self) -> Option<&Token> {
        self.settings.token.as_ref().filter(|_| self.subject.ways.takes_token)
    }

    fn request(&self, at: &Uri, ask: Ask) -> Result<Request<()>, Fault> {
        let mut request = Request::builder().uri(at).header("accept-encoding", "identity");
        request = request.method(if ask == Ask::Headers { "HEAD" } else { "GET" });
        if let Ask::Content { from } = ask
            && from > 0
        {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let Some(token) = self.token().filter(|_| same_place(at, &self.endpoint)) {
            request = request.header("authorization", format!("Bearer {}", token.0));
        }
        // The error would contain the token.
        request.body(()).map_err(|_| lasting(anyhow!("HF_TOKEN: has characters that no token has: copy it again")))
    }

    /// Refuses an address without encryption, unless it is the user's own endpoint or on this machine.
    fn check_scheme(&self, at: &Uri) -> Result<(), Fault> {
        if at.scheme_str() == Some("https") || same_place(at, &self.endpoint) || is_loopback(at) {
            return Ok(());
        }
        let (shown, address) = (&self.subject.name, at.to_string());
        let address = plain(&address);
        Err(lasting(anyhow!(
            "{shown}: is sent on to {address}, which is not encrypted: refused; set {} to another mirror",
            self.subject.ways.mirror
        )))
    }

    /// Returns an answer with content, and the fault that any other status is.
    fn checked(&self, at: &Uri, answer: Answer) -> Result<Answer, Fault> {
        let told = Told {
            code: answer.header("x-error-code").unwrap_or_default(),
            pause: answer.header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs),
            had_token: self.token().is_some(),
        };
        self.subject.fault_of_status(at, answer.status, &told).map_or(Ok(answer), Err)
    }

    /// Refuses content that a server or a proxy has packed, although plain bytes were asked for.
    fn unpacked(&self, at: &Uri, answer: Answer, ask: Ask) -> Result<Answer, Fault> {
        let is_known = |word: &str| PACKINGS.iter().any(|known| word.trim().eq_ignore_ascii_case(known));
        let packing = answer.header("content-encoding").filter(|words| words.split(',').any(is_known));
        match packing {
            Some(packing) if ask != Ask::Headers => Err(lasting(anyhow!(
                "{}: {} sends packed content ({packing}), where plain bytes were asked for: go past the proxy that packs it, or set {} to another \
                 mirror",
                self.subject.name,
                at.host().unwrap_or_default(),
                self.subject.ways.mirror
            ))),
            _ => Ok(answer),
        }
    }
}

/// Returns the certificates of authorities: those of the file that the environment names, else Mozilla's.
fn certificates() -> Result<RootCerts> {
    let named =
        ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"].into_iter().find_map(|name| Some((name, std::env::var_os(name)?)));
    let Some((name, path)) = named.filter(|(_, path)| !path.is_empty()) else { return Ok(RootCerts::WebPki) };
    let shown = || format!("{name} = {}: must be a file of certificates (PEM)", path.display());
    let bytes = read_file(path.as_ref()).with_context(shown)?;
    let items = parse_pem(&bytes).collect::<Result<Vec<PemItem>, _>>().with_context(shown)?;
    let all = items.into_iter().filter_map(|item| if let PemItem::Certificate(one) = item { Some(one) } else { None });
    Ok(RootCerts::Specific(Arc::new(all.collect())))
}

/// Returns the address that a redirect at `from` leads to.
fn resolved(from: &Uri, to: &str) -> Option<Uri> {
    let (scheme, host) = (from.scheme_str()?, from.authority()?);
    let whole = match to {
        to if to.starts_with("//") => format!("{scheme}:{to}"),
        to if to.starts_with('/') => format!("{scheme}://{host}{to}"),
        to => to.to_string(),
    };
    let next: Uri = whole.parse().ok()?;
    (next.scheme().is_some() && next.host().is_some() && !next.authority()?.as_str().contains('@')).then_some(next)
}

/// Returns whether two addresses have the same scheme, host and port.
fn same_place(a: &Uri, b: &Uri) -> bool {
    let of = |uri: &Uri| {
        let scheme = uri.scheme_str().map(str::to_lowercase);
        let port = uri.port_u16().unwrap_or(if scheme.as_deref() == Some("http") { 80 } else { 443 });
        (scheme, uri.host().map(str::to_lowercase), port)
    };
    of(a) == of(b)
}

/// Returns whether an address is on this machine.
fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_endpoints_own_scheme_host_and_port_are_its_place() {
        let endpoint: Uri = "https://hub.example".parse().unwrap();
        for (other, same) in [
            ("https://hub.example/a?b=c", true),
            ("https://HUB.example:443/", true),
            ("http://hub.example/", false),
            ("https://hub.example:8443/", false),
            ("https://hub.example.evil/", false),
            ("https://cdn.hub.example/", false),
        ] {
            assert_eq!(same_place(&other.parse().unwrap(), &endpoint), same, "{other}");
        }
    }

    #[test]
    fn redirects_lead_where_a_browser_would_go() {
        let from: Uri = "https://hub.example/a/b".parse().unwrap();
        for (to, expected) in [
            ("/c?d", Some("https://hub.example/c?d")),
            ("//cdn.example/x", Some("https://cdn.example/x")),
            ("https://cdn.example/x", Some("https://cdn.example/x")),
            ("https://hub.example@evil.example/x", None),
            ("nowhere", None),
            ("", None),
        ] {
            assert_eq!(resolved(&from, to).map(|uri| uri.to_string()).as_deref(), expected, "{to}");
        }
        assert!(is_loopback(&"http://[::1]:8/".parse().unwrap()) && !is_loopback(&"http://10.0.0.1/".parse().unwrap()));
    }
}
