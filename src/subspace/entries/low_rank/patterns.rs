//! The texts of `[subspace.low-rank]` that choose layers: patterns of names with a value, and lists of blocks.

use anyhow::{Result, bail, ensure};

/// Returns the layer and the value of a pattern `LAYER=VALUE`.
pub fn pattern(text: &str) -> Option<(&str, f64)> {
    let (layer, value) = text.split_once('=')?;
    Some((layer.trim(), value.trim().parse().ok()?)).filter(|(layer, _)| !layer.is_empty())
}

/// Returns the value of the first pattern that a layer's name is or, after a dot, ends with.
pub fn value_of(patterns: &[String], layer: &str) -> Option<f64> {
    let fits = |end: &str| layer.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'));
    patterns.iter().filter_map(|text| pattern(text)).find(|(end, _)| fits(end)).map(|(_, value)| value)
}

/// Returns the numbers in a list such as "0-5,11"; each must be below `available`.
pub fn parse_blocks(text: &str, available: usize) -> Result<Vec<usize>> {
    let mut blocks = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) else {
            bail!("`{part}` is no block number or range: write for example \"6-11\" or \"0,3,5-7\"");
        };
        ensure!(first <= last, "the range {part} runs backwards");
        ensure!(last < available, "block {last} does not exist: the checkpoint has blocks 0 to {}", available - 1);
        ensure!(last < 10_000, "block {last} does not exist");
        blocks.extend(first..=last);
    }
    blocks.sort_unstable();
    blocks.dedup();
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_lists() {
        assert_eq!(parse_blocks("6-8, 0,7", 12).unwrap(), vec![0, 6, 7, 8]);
        for (text, rule) in [
            ("6-", "no block number"),
            ("8-6", "runs backwards"),
            ("12", "block 12 does not exist: the checkpoint has blocks 0 to 11"),
        ] {
            let error = parse_blocks(text, 12).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
    }
}
