//! Small helpers for lists and texts.

/// Appends an item unless the list has it already.
pub fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Returns a text with a capital first letter.
pub fn capital(text: &str) -> String {
    let first = text.chars().next().map_or(0, char::len_utf8);
    text[..first].to_uppercase() + &text[first..]
}
