//! The texts of `[subspace.low-rank]` that give some layers a value of their own: patterns of names.

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
