//! Reads from an archive's code what its `forward` takes.

/// Returns the names of the tensors that the `forward` of a class takes; empty if the code has no such method. Of those that
/// may be left out, only the kinds of tokens are named. `files` are the archive's files of code, each a name and its text;
/// `class` is a full name such as `__torch__.models.Encoder`.
pub fn inputs(files: &[(String, String)], class: &str) -> Vec<String> {
    let Some((module, name)) = class.rsplit_once('.') else { return Vec::new() };
    let file = files.iter().find(|(path, _)| path.trim_end_matches(".py").replace('/', ".") == module);
    file.and_then(|(_, text)| of_class(text, name)).unwrap_or_default()
}

fn of_class(text: &str, name: &str) -> Option<Vec<String>> {
    let head = format!("class {name}(");
    let start = if text.starts_with(&head) { 0 } else { text.find(&format!("\n{head}"))? + 1 };
    let body = &text[start + head.len()..];
    let end = body.find("\nclass ").unwrap_or(body.len());
    let method = body[..end].split_once("  def forward(")?.1;
    Some(arguments(method).into_iter().skip(1).filter_map(|argument| tensor(&argument)).collect())
}

/// Returns the name of an argument such as `x: Tensor`; `None` for other types, and for what may be left out.
fn tensor(argument: &str) -> Option<String> {
    let (name, kind) = argument.split_once(':')?;
    let (name, kind) = (name.trim(), kind.trim());
    let counts = kind == "Tensor" || (kind.starts_with("Optional[Tensor]") && name.contains("token_type"));
    counts.then(|| name.to_string())
}

/// Splits arguments such as `x: Tensor, y: Optional[Tensor]=None) -> Tensor`.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut found, mut current) = (0, Vec::new(), String::new());
    for sign in text.chars() {
        match sign {
            ')' if depth == 0 => break,
            ',' if depth == 0 => found.push(std::mem::take(&mut current)),
            _ => {
                depth += i32::from(matches!(sign, '(' | '[')) - i32::from(matches!(sign, ')' | ']'));
                current.push(sign);
            }
        }
    }
    found.push(current);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_those_of_the_class_that_is_asked_for() {
        let code = "class Other(Module):\n  def forward(self: __torch__.Other,\n    x: Tensor) -> Tensor:\n    return x\n\
                    class Encoder(Module):\n  __parameters__ = []\n  def forward(self: __torch__.m.Encoder,\n    \
                    input_ids: Tensor,\n    more: Dict[str, Tensor],\n    token_type_ids: Optional[Tensor]=None,\n    \
                    attn_mask: Optional[Tensor]=None,\n    causal: bool=False) -> Tuple[Tensor, Tensor]:\n    pass\n\
                    class Last(Module):\n  def forward(self: __torch__.m.Last) -> Tensor:\n    pass\n";
        let files = vec![("__torch__/a.py".into(), String::new()), ("__torch__/m.py".into(), code.to_string())];
        assert_eq!(inputs(&files, "__torch__.m.Encoder"), ["input_ids", "token_type_ids"]);
        assert_eq!(inputs(&files, "__torch__.m.Other"), ["x"]);
        assert!(inputs(&files, "__torch__.m.Last").is_empty() && inputs(&files, "__torch__.m.None").is_empty());
    }
}
