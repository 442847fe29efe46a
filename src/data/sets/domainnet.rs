//! DomainNet (Peng et al. 2019), cleaned version: 345 classes in six domains. The lists `<domain>_train.txt` and
//! `<domain>_test.txt` have lines `<domain>/<class>/<image> <label>`. Training uses one domain, and each test domain is
//! a test set of its own, `domainnet-<domain>`. Any other set in this layout works too. See <https://ai.bu.edu/M3SDA/>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::read::class_folders::{expect_once, read_classes, repeated};
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::tables::Numbers;
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Published, Request, Resize, Split, SplitName};
use crate::hub::DataRoot;
use crate::hub::originals::Originals;
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "domainnet",
    about: "DomainNet's lists: 345 classes; train on one domain, test on any, each a test set of its own",
    fetch: "the cleaned version from https://ai.bu.edu/M3SDA/: of each domain the .zip, unpacked, and both lists: \
            ROOT/real/<class>/<images>, ROOT/real_train.txt, ROOT/real_test.txt, …",
    marks: &[],
    originals: Originals::ByHand("no hashes of its archives are published"),
    hub: Some(Hub {
        repository: "wltjr1007/DomainNet",
        config: "default",
        splits: &[],
        image: "image",
        label: "label",
    }),
    read: |reader| Box::new(DomainNet::read(reader)),
    sample: Some(|reader| Box::new(DomainNet::read(reader))),
};

/// The numbers of images in the cleaned version: domain, train, test.
const PUBLISHED: [(&str, usize, usize); 6] = [
    ("clipart", 33_525, 14_604),
    ("infograph", 36_023, 15_582),
    ("painting", 50_416, 21_850),
    ("quickdraw", 120_750, 51_750),
    ("real", 120_906, 52_041),
    ("sketch", 48_212, 20_916),
];

settings! {
    #[derive(Clone)]
    struct DomainNet {
        root: DataRoot, because "the folder that holds real_train.txt, real_test.txt and real/";
        /// Domain to train on.
        train: String = "real".into();
        /// Domains to test on, each a test set of its own; by default the domain of training.
        test: Vec<String> = vec![train.clone()];
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
        classes: Option<Vec<String>>, by read_classes;
    } then check
}

impl DomainNet {
    fn check(&self, reader: &Reader) {
        let DomainNet { train, test, .. } = self;
        expect_once(reader, "test", "domain", test);
        for name in [train].into_iter().chain(test).filter(|name| name.contains(['/', '\\'])) {
            reader.problem(if name == train { "train" } else { "test" }, format!("`{name}` is no domain: no slashes"));
        }
    }
}

impl Dataset for DomainNet {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        match self.test.as_slice() {
            [domain] => format!("domainnet-{domain}"),
            _ => "domainnet".into(),
        }
    }

    /// Returns the classes in the list of the training domain. If there is no such list, those of the first test
    /// domain.
    fn classes(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.classes {
            return Ok(given.clone());
        }
        if let Some(names) = self.hub_names()? {
            return Ok(names);
        }
        let train = self.list(&self.train, SplitName::Train);
        let test = self.test.first().map(|domain| self.list(domain, SplitName::Test));
        let file = if train.is_file() { train } else { test.unwrap_or(train) };
        class_names(&file, &lines(&file)?)
    }

    fn published(&self) -> Published {
        let of = |domain: &str| PUBLISHED.iter().find(|(name, ..)| *name == domain);
        let Some(&(_, train, _)) = of(&self.train) else { return Published::default() };
        let test: Option<usize> = self.test.iter().map(|domain| of(domain).map(|(.., test)| test)).sum();
        let test = test.map(|count| (SplitName::Test, count));
        Published { classes: Some(345), images: [(SplitName::Train, train)].into_iter().chain(test).collect() }
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    /// Reads the images of one split. Those of several test domains are one split only for counting; each is a test set
    /// of its own in [`Dataset::test_sets`].
    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let domains = match split {
            SplitName::Train => std::slice::from_ref(&self.train),
            SplitName::Test => &self.test[..],
            SplitName::Val => bail!("domainnet has no split `val`; set data.domainnet.validation, say to 0.2"),
        };
        let part = if let [domain] = domains { format!("{domain}/{split}") } else { split.to_string() };
        if let Some(listing) = self.of_hub(split, domains)? {
            return self.files.load_part(listing, split, &part, request);
        }
        // The requested lists are read first, so that a missing one is named. The classes may come from another
        // domain's list.
        let read = |domain: &String| lines(&self.list(domain, split)).map(|lines| (self.list(domain, split), lines));
        let lists = domains.iter().map(read).collect::<Result<Vec<_>>>()?;
        let classes = self.classes()?;
        let mut listing = Listing::default();
        for (file, lines) in lists {
            for line in lines {
                let class = classes.get(line.label as usize);
                let at = format!("{}:{}", file.display(), line.number);
                let class = class
                    .with_context(|| format!("{at}: label {}, but there are {} classes", line.label, classes.len()))?;
                ensure!(
                    self.classes.is_some() || line.class == *class,
                    "{at}: label {} is `{}` here, but `{class}` in the list of the training domain: the lists do not belong \
                     together",
                    line.label,
                    line.class
                );
                listing.paths.push(self.root.join(line.path));
                listing.labels.push(line.label);
            }
        }
        self.files.load_part(listing, split, &part, request)
    }

    fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        let alone = |domain: &String| -> (String, Box<dyn Dataset>) {
            (domain.clone(), Box::new(DomainNet { test: vec![domain.clone()], ..self.clone() }))
        };
        if self.test.len() > 1 { self.test.iter().map(alone).collect() } else { Vec::new() }
    }
}

impl DomainNet {
    /// Returns the classes that the Hub's tables name; `None` if there are no tables.
    fn hub_names(&self) -> Result<Option<Vec<String>>> {
        let hub = ENTRY.hub()?;
        let any =
            [SplitName::Train, SplitName::Test].into_iter().find_map(|split| hub.open(&self.root, split).transpose());
        let Some(tables) = any.transpose()? else { return Ok(None) };
        let names = tables.names(hub.label)?;
        names
            .map(Some)
            .with_context(|| format!("{}: its tables name no classes: set data.domainnet.classes", self.root.display()))
    }

    /// Returns the images of some domains from the Hub's tables, domain by domain; `None` if there are no tables.
    fn of_hub(&self, split: SplitName, domains: &[String]) -> Result<Option<Listing>> {
        let hub = ENTRY.hub()?;
        let Some(tables) = hub.open(&self.root, split)? else { return Ok(None) };
        let labels = tables.labels(hub.label, Numbers::Named(&self.classes()?))?;
        let of = tables.words("domain")?;
        let mut listing = tables.listing(hub.image, labels)?;
        let mut kept = Vec::new();
        for domain in domains {
            let before = kept.len();
            kept.extend((0..).zip(&of).filter(|(_, name)| *name == domain).map(|(at, _)| at as u32));
            ensure!(kept.len() > before, "{}: has no image of the domain `{domain}`", self.root.display());
        }
        listing.select(&kept);
        Ok(Some(listing))
    }

    fn list(&self, domain: &str, split: SplitName) -> PathBuf {
        self.root.join(format!("{domain}_{split}.txt"))
    }
}

/// One line of a list.
struct Line {
    number: usize,
    /// The path of the image below the root.
    path: PathBuf,
    /// The folder of the image.
    class: String,
    label: u32,
}

fn lines(file: &Path) -> Result<Vec<Line>> {
    let at = file.display();
    let text = crate::base::files::read_text(file)
        .with_context(|| format!("{at}: cannot read; `bella data check domainnet=ROOT` says what to fetch"))?;
    let line = |(i, line): (usize, &str)| {
        let wrong = || format!("{at}:{}: `{line}` is not `<domain>/<class>/<image> <label>`", i + 1);
        let (path, label) = line.trim().rsplit_once(char::is_whitespace).with_context(wrong)?;
        let path = PathBuf::from(path.trim());
        let class = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).with_context(wrong)?;
        Ok(Line { number: i + 1, class: class.to_string(), label: label.parse().ok().with_context(wrong)?, path })
    };
    let found: Vec<Line> =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect::<Result<_>>()?;
    ensure!(!found.is_empty(), "{at}: lists no image");
    Ok(found)
}

/// Returns the classes of a list. Every label from 0 must have one name, and every name one label.
fn class_names(file: &Path, lines: &[Line]) -> Result<Vec<String>> {
    let at = file.display();
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    for line in lines {
        let before = *names.entry(line.label).or_insert(&line.class);
        ensure!(before == line.class, "{at}:{}: label {} is `{before}` and `{}`", line.number, line.label, line.class);
    }
    if let Some((missing, _)) = (0..).zip(names.keys()).find(|(i, label)| i != *label) {
        bail!("{at}: no image of label {missing}, but of higher ones: name all classes in data.domainnet.classes");
    }
    let names: Vec<String> = names.into_values().map(str::to_string).collect();
    if let Some(twice) = repeated(&names) {
        bail!("{at}: two labels are of one class, `{twice}`");
    }
    Ok(names)
}

impl SmallSet for DomainNet {
    fn side(&self) -> u32 {
        320
    }

    /// Names the classes, since the lists of few images do not contain all of them.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let named = |label: usize| self.classes.as_ref().and_then(|names| names.get(label).cloned());
        let classes = (0..sizes.classes).map(|label| named(label).unwrap_or_else(|| format!("object_{label:03}")));
        toml::Table::from_iter([("classes".to_string(), classes.collect::<Vec<_>>().into())])
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let classes = self.classes()?;
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        let train = std::iter::once((&self.train, SplitName::Train));
        for (domain, split) in train.chain(self.test.iter().map(|domain| (domain, SplitName::Test))) {
            let mut list = String::new();
            for i in 0..sizes.of(split) {
                let label = sizes.label(i);
                let image = format!("{domain}/{}/{domain}_{split}_{i:06}.jpg", classes[label]);
                put(&self.root.join(&image), pictures.file(i)?)?;
                list += &format!("{image} {label}\n");
            }
            put(&self.list(domain, split), list)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{error, grays, load, mistakes, put, set, write};

    /// Returns two classes in the domains `real` and `sketch`. Each image has a different gray.
    fn domains() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let lists = [
            ("real_train", "real/aircraft_carrier/a.png 0\nreal/zebra/b.png 1\nreal/zebra/c.png 1\n\n"),
            ("real_test", "real/zebra/d.png 1\n"),
            ("sketch_test", "sketch/zebra/e.png 1\nsketch/aircraft_carrier/f.png 0\n"),
        ];
        for (list, text) in lists {
            write(root.path(), &format!("{list}.txt"), text);
            for line in text.lines().filter(|line| !line.is_empty()) {
                let file = line.split(' ').next().unwrap();
                put(root.path(), file, file.as_bytes()[file.len() - 5]);
            }
        }
        root
    }

    fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
        set(&ENTRY, root, extra)
    }

    #[test]
    fn trains_on_one_domain_and_tests_on_others() {
        let root = domains();
        let set = of(root.path(), "");
        assert_eq!(
            (set.label(), set.classes().unwrap()),
            ("domainnet-real".into(), vec!["aircraft_carrier".into(), "zebra".into()])
        );
        let train = load(&*set, SplitName::Train).unwrap();
        assert_eq!((grays(&train), &train.labels[..]), (b"abc".to_vec(), &[0, 1, 1][..]));
        assert_eq!(train.name, "domainnet/real/train");
        assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), b"d");
        assert!(set.test_sets().is_empty());
        assert_eq!(set.published(), Published::new(345, &[(SplitName::Train, 120_906), (SplitName::Test, 52_041)]));
        assert!(error(&*set, SplitName::Val).contains("no split `val`"));
    }

    #[test]
    fn several_domains_are_test_sets_of_their_own() {
        let root = domains();
        let set = of(root.path(), "test = [\"sketch\", \"real\"]");
        let each = set.test_sets();
        let labels: Vec<String> = each.iter().map(|(_, set)| set.label()).collect();
        assert_eq!(each[0].0, "sketch");
        assert_eq!(
            (set.label(), labels),
            ("domainnet".into(), vec!["domainnet-sketch".into(), "domainnet-real".into()])
        );
        let sketch = load(&*each[0].1, SplitName::Test).unwrap();
        assert_eq!((grays(&sketch), &sketch.labels[..]), (b"ef".to_vec(), &[1, 0][..]));
        assert_eq!(grays(&load(&*set, SplitName::Test).unwrap()), b"efd");
        assert_eq!(set.published().images_of(SplitName::Test), Some(20_916 + 52_041));
        assert!(mistakes(&ENTRY, "test = [\"real\", \"real\"]").contains("`real` comes twice"));
        assert!(mistakes(&ENTRY, "train = \"../real\"").contains("no slashes"));
    }

    #[test]
    fn lists_that_do_not_fit_are_refused_by_line() {
        let root = domains();
        let refused = |list: &str, text: &str, split| {
            write(root.path(), list, text);
            error(&*of(root.path(), "test = [\"sketch\"]"), split)
        };
        let text = refused("sketch_test.txt", "sketch/zebra/e.png 0\n", SplitName::Test);
        assert!(text.contains("sketch_test.txt:1: label 0 is `zebra` here, but `aircraft_carrier`"), "{text}");
        assert!(
            refused("sketch_test.txt", "sketch/zebra/e.png 2\n", SplitName::Test).contains("label 2, but there are 2")
        );
        let text = refused("sketch_test.txt", "sketch/zebra/e.png 1\nsketch/zebra/gone.png 1\n", SplitName::Test);
        assert!(text.contains("1 of 2 listed files cannot be used") && text.contains("gone.png"), "{text}");
        assert!(
            refused("sketch_test.txt", "sketch/zebra/e.png\n", SplitName::Test).contains("sketch_test.txt:1: `sketch/")
        );
        assert!(refused("sketch_test.txt", "\n", SplitName::Test).contains("sketch_test.txt: lists no image"));
        let text = refused("real_train.txt", "real/zebra/b.png 0\nreal/zebra/c.png 1\n", SplitName::Train);
        assert!(text.contains("two labels are of one class, `zebra`"), "{text}");
        let text = refused("real_train.txt", "real/zebra/b.png 0\nreal/yak/c.png 0\n", SplitName::Train);
        assert!(text.contains("real_train.txt:2: label 0 is `zebra` and `yak`"), "{text}");
        assert!(refused("real_train.txt", "real/zebra/b.png 1\n", SplitName::Train).contains("no image of label 0"));
        std::fs::remove_file(root.path().join("real_train.txt")).unwrap();
        let text = error(&*of(root.path(), ""), SplitName::Train);
        assert!(text.contains("real_train.txt: cannot read; `bella data check domainnet=ROOT` says"), "{text}");
    }
}
