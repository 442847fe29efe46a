use super::*;

const METHODS: [&str; 3] = ["map", "ensemble", "svgd"];

fn method(text: &str) -> Result<Option<String>, String> {
    read(text, |r| {
        let (name, reader) = r.one_of("method", &METHODS)?;
        reader.finish();
        Some(name)
    })
}

#[test]
fn one_variant_is_chosen() {
    assert_eq!(method("[method.svgd]\n"), Ok(Some("svgd".to_owned())));
    assert_eq!(method("method.map = {}"), Ok(Some("map".to_owned())));
    let all = "[method.map], [method.ensemble], [method.svgd]";
    let cases = [
        ("", format!("x.toml: method is required: one of {all}")),
        ("\n[method]", format!("x.toml:2: method: needs one of {all}")),
        (
            "[method.svgd]\n[method.map]\n",
            "x.toml:2: [method.map] and [method.svgd] are both given: choose one".to_owned(),
        ),
        (
            "[method.svdg]\n",
            "x.toml:1: unknown method `svdg`; known: map, ensemble, svgd; did you mean `svgd`?".to_owned(),
        ),
        ("method = 'svgd'", "x.toml:1: method = 'svgd': must be a table: write [method.svgd]".to_owned()),
        ("method = 3", format!("x.toml:1: method = 3: must be a table: one of {all}")),
        (
            "method.svgd = 3",
            "x.toml:1: method.svgd = 3: must be a table: write [method.svgd] and its keys below".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(method(text), Err(expected), "{text}");
    }
}
