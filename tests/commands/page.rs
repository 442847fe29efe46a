//! The page of `bella report --html` in a browser: three widths, two colour schemes. Skipped where no Chromium is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;

const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The widths of a telephone, a tablet and a screen, in pixels.
const WIDTHS: &[u32] = &[360, 768, 1440];

/// Collects what goes wrong while the page loads.
const WATCH: &str = "<script>window.faults=[];addEventListener('error',e=>faults.push(String(e.message)),true);\
    console.error=console.warn=(...words)=>faults.push(words.join(' '))</script>";

/// A document with the page in frames of the three widths. When all are loaded, its body becomes one line per frame.
fn frames() -> String {
    let frames: Vec<String> =
        WIDTHS.iter().map(|width| format!("<iframe src='page.html' width='{width}' height='900'></iframe>")).collect();
    let script = "addEventListener('load',()=>{document.body.innerText=[...document.querySelectorAll('iframe')].map(f=>{\
        const w=f.contentWindow,d=w.document,e=d.documentElement;\
        const alone=[...d.querySelectorAll('svg')].filter(s=>!s.parentElement.closest('svg'));\
        const told=s=>s.getAttribute('aria-label')||s.getAttribute('aria-labelledby')||s.getAttribute('aria-hidden')||s.querySelector('title');\
        const dumb=alone.filter(s=>!told(s)).length+[...d.images].filter(i=>!i.alt).length;\
        const wide=[...d.querySelectorAll('body *')].filter(n=>n.getBoundingClientRect().right>e.clientWidth+1&&!n.closest('.scroll,svg,pre')).slice(0,3)\
            .map(n=>n.tagName+'.'+n.className);\
        const back=w.getComputedStyle(d.body).backgroundColor;\
        return ['frame',f.width,'content',e.scrollWidth,'figures',alone.length,'untold',dumb,'wide',JSON.stringify(wide),\
            'background',back.replaceAll(' ',''),'faults',JSON.stringify(w.faults)].join(' ')}).join('\\n')})";
    format!("<!doctype html><body>{}<script>{script}</script></body>", frames.join(""))
}

fn browser() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let named = |folder: PathBuf| BROWSERS.iter().map(move |name| folder.join(name));
    std::env::split_paths(&folders).flat_map(named).find(|path| path.is_file())
}

/// The text of the document after its scripts have run, with `scheme` 0 for dark and 1 for light.
fn shown(browser: &Path, place: &Place, scheme: u8) -> String {
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files"]);
    command.arg(format!("--user-data-dir={}", place.path(&format!("profile-{scheme}")).display()));
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command.args(["--window-size=3000,1000", "--dump-dom"]);
    let output = command.arg(format!("file://{}", place.path("frames.html").display())).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The word after `name` in a line of [`frames`].
fn after<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(&format!("{name} "))
        .nth(1)
        .and_then(|rest| rest.split([' ', '<']).next())
        .unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn the_page_fits_every_screen_in_light_and_dark() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no Chromium is installed");
        return;
    };
    let place = trained();
    let results = place.path("results").display().to_string();
    let page = place.path("plain.html");
    done(bella(&["report", &results, "--html", &page.display().to_string()]));
    let plain = std::fs::read_to_string(&page).unwrap();
    place.write("page.html", plain.replacen("<head>", &format!("<head>{WATCH}"), 1).as_bytes());
    place.write("frames.html", frames().as_bytes());
    let [dark, light] = [0, 1].map(|scheme| shown(&browser, &place, scheme));
    for (line, width) in [&dark, &light].iter().flat_map(|text| text.split("<br>").zip(WIDTHS)) {
        assert_eq!(after(line, "frame"), width.to_string(), "{line}");
        assert!(after(line, "content").parse::<u32>().unwrap() <= *width, "the page overflows: {line}");
        assert!(after(line, "figures").parse::<u32>().unwrap() > 3, "{line}");
        assert_eq!((after(line, "untold"), after(line, "faults")), ("0", "[]"), "{line}");
    }
    assert_ne!(after(&dark, "background"), after(&light, "background"), "the page follows the reader's colour scheme");
}
