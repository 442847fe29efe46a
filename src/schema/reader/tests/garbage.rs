use super::*;

/// Reads every kind of value from an arbitrary `tree`.
fn read_everything(tree: &Tree) -> String {
    let root = Reader::root(tree);
    root.integer("seed", 0..=9).required();
    root.string("name").required();
    if let Some((_, svgd)) = root.one_of("method", &["map", "svgd"]) {
        svgd.count("particles", 2..=9).required();
        drive(&svgd, "drive");
        svgd.floats_or_one("lr", limits::above(0.0)).required();
        svgd.finish();
    }
    let train = root.section("train");
    train.boolean("fast").required();
    train.strings("targets").required();
    train.integers("blocks", 0..=9).required();
    train.finish();
    root.close(()).err().map(|p| p.to_string()).unwrap_or_default()
}

/// A stream of numbers that is the same in every run (xorshift64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Returns `valid` with one to four changes: a byte replaced, a byte inserted, or up to eight bytes removed.
fn damaged(valid: &str, draws: &mut Draws) -> String {
    let bytes = b"[]{}=.\"'\\\n\r\t #,019eEx_-+:aZ\0\x7f\xff\xc3";
    let mut text = valid.as_bytes().to_vec();
    for _ in 0..=draws.below(4) {
        let at = draws.below(text.len());
        match draws.below(3) {
            0 => text[at] = bytes[draws.below(bytes.len())],
            1 => text.insert(at, bytes[draws.below(bytes.len())]),
            _ => drop(text.drain(at..text.len().min(at + 1 + draws.below(8)))),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn garbage_gives_messages_of_one_line_and_no_panic() {
    let valid = "seed = 1\nname = \"é\\n\"\n[method.svgd]\nparticles = 0x5\ndrive = 'own'\n\
                 lr = [1e-3, 2.0]\n[train]\nfast = true\ntargets = [\"a\", '''b''']\nblocks = [1,\n2]\n";
    assert_eq!(read_everything(&Tree::parse("x.toml", valid).expect("valid")), "");
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    let (mut parsed, mut refused) = (0, 0);
    for _ in 0..4000 {
        let text = damaged(valid, &mut draws);
        let found = match Tree::parse("x.toml", &text) {
            Ok(tree) => {
                parsed += 1;
                read_everything(&tree)
            }
            Err(problems) => {
                refused += 1;
                let found = problems.to_string();
                assert!(!found.is_empty(), "{text}");
                found
            }
        };
        for line in found.lines() {
            assert!(line.starts_with("x.toml:"), "{line}");
        }
        let argument = text.lines().next().unwrap_or("").to_owned();
        if let Ok(tree) = Tree::load(&[], &[argument], &[]) {
            read_everything(&tree);
        }
    }
    assert!(parsed > 300 && refused > 500, "{parsed} parsed, {refused} refused");
}

#[test]
fn deep_nesting_is_refused_not_overflowed() {
    for text in [
        format!("a = {}{}", "[".repeat(50_000), "]".repeat(50_000)),
        format!("a = {}", "{a=".repeat(50_000)),
        format!("{}a = 1", "a.".repeat(50_000)),
        format!("[{}a]", "a.".repeat(50_000)),
    ] {
        assert!(Tree::parse("x.toml", &text).is_err());
        assert!(Tree::load(&[], &[text], &[]).is_err());
    }
}
