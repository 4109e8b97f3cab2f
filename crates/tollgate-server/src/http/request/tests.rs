use super::*;

#[track_caller]
fn mistake(body: &str) -> (Option<String>, String) {
    let Mistake { field, detail } = ApiRequest::parse(body.as_bytes()).unwrap_err();
    (field, detail)
}

#[test]
fn a_whole_request_is_read() {
    let body = r#" {"cost": 18446744073709551615, "domain": "shop",
        "attributes": {"ip": "203.0.113.7", "path": "/caf\u00e9?\ud83d\ude00"}} "#;
    assert_eq!(
        ApiRequest::parse(body.as_bytes()).unwrap(),
        ApiRequest {
            attributes: Attributes::from([("ip", "203.0.113.7"), ("path", "/caf\u{e9}?\u{1f600}")])
                .with_domain("shop"),
            cost: Some(Cost::new(u64::MAX)),
        }
    );
}

#[test]
fn what_is_left_out_has_its_default() {
    let request = ApiRequest::parse(br#"{"attributes":{"ip":"203.0.113.7"}}"#).unwrap();
    assert_eq!(request.attributes.domain(), "default");
    assert_eq!(request.cost, None);
}

#[test]
fn sixty_four_attributes_are_accepted_and_one_more_is_named() {
    let attributes = |count| {
        let pairs: Vec<_> = (0..count).map(|index| format!("\"a{index}\":\"v\"")).collect();
        format!("{{\"attributes\":{{{}}}}}", pairs.join(","))
    };
    let most = ApiRequest::parse(attributes(64).as_bytes()).unwrap();
    assert_eq!(most.attributes.len(), 64);
    assert_eq!(
        mistake(&attributes(65)),
        (
            Some("attributes.a64".to_owned()),
            "attribute \"a64\" is one too many: a request has at most 64".to_owned()
        )
    );
}

#[test]
fn long_text_is_not_repeated_in_whole() {
    let name = "x".repeat(1_000);
    let cut = format!("{}...", "x".repeat(64));
    let (field, detail) = mistake(&format!("{{\"{name}\":1}}"));
    assert_eq!(field, Some(cut.clone()));
    assert_eq!(detail, format!("unknown field \"{cut}\": the fields are attributes, cost, domain"));
    let (_, detail) = mistake(&format!("{{\"cost\":{}}}", "9".repeat(1_000)));
    assert_eq!(
        detail,
        format!(
            "cost must be a whole number from 0 to 18446744073709551615, not {}...",
            "9".repeat(64)
        )
    );
}

#[test]
fn nested_values_of_any_depth_are_refused_without_recursion() {
    let deep = "[".repeat(30_000) + &"]".repeat(30_000);
    let (field, detail) = mistake(&format!("{{\"cost\":{deep}}}"));
    assert_eq!(field.as_deref(), Some("cost"));
    assert_eq!(detail, "cost must be a whole number from 0 to 18446744073709551615, not an array");
}

#[test]
fn half_a_surrogate_pair_is_refused_wherever_it_stands() {
    for (body, field) in [
        (r#"{"attributes":{"ip":"\ud800"}}"#, "attributes.ip"),
        (r#"{"attributes":{"\ud800":"ip"}}"#, "attributes"),
        (r#"{"domain":"\udc00"}"#, "domain"),
    ] {
        let (named, detail) = mistake(body);
        assert_eq!(named.as_deref(), Some(field), "{body}");
        assert!(detail.contains("half of a surrogate pair"), "{detail}");
    }
}

#[test]
fn a_control_character_in_a_string_is_a_mistake_of_the_json() {
    for body in ["{\"attributes\":{\"ip\":\"a\nb\"}}", "{\"domain\":\"a\u{0}\"}"] {
        let (field, detail) = mistake(body);
        assert_eq!(field, None, "{body:?}");
        assert!(detail.starts_with("the body is not valid JSON: control character"), "{detail}");
    }
}
