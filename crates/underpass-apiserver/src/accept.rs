//! What a client said it can read: the `Accept` header, best alternative first.

/// One alternative: `application/json;as=Table;v=v1;g=meta.k8s.io`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alternative<'a> {
    type_: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths, as RFC 9110 has it.
    quality: u16,
}

/// The alternatives by quality, then as written. No header, or nothing that can be read in it, means anything.
pub(crate) fn alternatives(accept: &str) -> Vec<Alternative<'_>> {
    let mut found: Vec<_> = accept.split(',').filter_map(Alternative::parse).collect();
    found.sort_by_key(|alternative| std::cmp::Reverse(alternative.quality));
    if accept.trim().is_empty() {
        found.push(Alternative { type_: "*", subtype: "*", parameters: Vec::new(), quality: 1000 });
    }
    found
}

impl<'a> Alternative<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (type_, subtype) = parts.next()?.split_once('/')?;
        let parameters: Vec<_> =
            parts.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.trim(), v.trim().trim_matches('"'))).collect();
        let quality = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case("q"));
        let quality = quality.map_or(Some(1.0), |(_, q)| q.parse::<f32>().ok())?.clamp(0.0, 1.0);
        let quality = (quality * 1000.0) as u16;
        (quality > 0).then_some(Self { type_, subtype, parameters, quality })
    }

    /// Whether this media type is named, or covered by a wildcard.
    pub(crate) fn allows(&self, media_type: &str) -> bool {
        let Some((type_, subtype)) = media_type.split_once('/') else { return false };
        let matches = |asked: &str, offered| asked == "*" || asked.eq_ignore_ascii_case(offered);
        matches(self.type_, type_) && matches(self.subtype, subtype)
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Whether the object is asked for in the shape of another kind (`as=`), and which: (group, version, kind).
    pub(crate) fn shape(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let kind = self.parameter("as")?;
        Some((self.parameter("g").unwrap_or_default(), self.parameter("v").unwrap_or_default(), kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_alternative_comes_first() {
        let found = alternatives("text/plain;q=0.5, application/yaml;q=0.8, application/json, bad, a/b;q=0, c/d;q=x");
        let types: Vec<_> = found.iter().map(|a| a.subtype).collect();
        assert_eq!(types, ["json", "yaml", "plain"]);
    }

    #[test]
    fn wildcards_and_an_absent_header_allow_everything() {
        assert!(alternatives("")[0].allows("application/json"));
        assert!(alternatives("application/*")[0].allows("application/json"));
        assert!(!alternatives("application/*")[0].allows("text/plain"));
        assert!(alternatives("nonsense").is_empty());
    }

    #[test]
    fn the_asked_shape_is_read_in_any_order_of_parameters() {
        let found = alternatives("application/json; as=Table ;v=v1;g=meta.k8s.io");
        assert_eq!(found[0].shape(), Some(("meta.k8s.io", "v1", "Table")));
        assert_eq!(alternatives("application/json;charset=utf-8")[0].shape(), None);
    }
}
