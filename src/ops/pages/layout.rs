//! The frame of every page.

use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use super::html::Text;
use crate::ops::api::Problem;
use crate::ops::guard::Visitor;

/// The pages that can be gone to from everywhere.
const PLACES: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/poison", "Poison"),
    ("/entity", "Entity"),
    ("/views", "Views"),
    ("/storage", "Storage"),
    ("/system", "System"),
];

/// A page.
pub(super) struct Page {
    /// Its title.
    pub(super) title: String,
    /// Where it is among [`PLACES`].
    pub(super) place: &'static str,
    /// Its content, as HTML.
    pub(super) body: String,
}

impl Page {
    /// The page with everything around it.
    pub(super) fn answer(&self, visitor: Visitor) -> Response {
        // Unlike everything else, pages say to this server alone where they are: a browser then tells the origin of
        // their forms.
        ([(header::REFERRER_POLICY, "same-origin")], Html(self.html(visitor))).into_response()
    }

    fn html(&self, visitor: Visitor) -> String {
        let places = PLACES.iter().map(|(path, name)| {
            let current = if *path == self.place { " aria-current=\"page\"" } else { "" };
            format!("<li><a href=\"{path}\"{current}>{name}</a></li>")
        });
        let door = match visitor {
            Visitor { signed_in: true, .. } => {
                "<form class=\"door\" method=\"post\" action=\"/logout\"><button class=\"quiet\">Sign out</button></form>"
            }
            Visitor { can_sign_in: true, .. } => "<a class=\"button quiet door\" href=\"/login\">Sign in</a>",
            Visitor { .. } => "<span class=\"hint door\" title=\"Changes need a token: set http.token_env\">read-only</span>",
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title} · evenkeel</title>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <link rel=\"icon\" href=\"/assets/icon.svg\">\n<link rel=\"stylesheet\" href=\"/assets/style.css\">\n\
             <script src=\"/assets/app.js\" defer></script>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n\
             <header><a class=\"brand\" href=\"/\"><img src=\"/assets/icon.svg\" alt=\"\" width=\"24\" height=\"24\">evenkeel</a>{door}\
             <nav aria-label=\"Pages\"><ul>{places}</ul></nav></header>\n\
             <main id=\"main\" tabindex=\"-1\">\n{body}\n</main>\n<footer>evenkeel {version} · <a href=\"/api/v1/openapi.json\">API</a> · \
             <a href=\"/metrics\">metrics</a> · <a href=\"/readyz\">readiness</a></footer>\n</body>\n</html>\n",
            title = Text(&self.title),
            places = places.collect::<String>(),
            body = self.body,
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

/// A page that says why there is none.
pub(super) fn problem(place: &'static str, problem: &Problem, visitor: Visitor) -> Response {
    let body = format!(
        "<h1>That did not work</h1><p class=\"note bad\" role=\"alert\">{}</p><p><a class=\"button\" href=\"{place}\">Back</a></p>",
        Text(problem.words())
    );
    let page = Page { title: "Not done".to_owned(), place, body };
    let status: StatusCode = problem.status();
    (status, page.answer(visitor)).into_response()
}

/// A table in a box of its own: `heads` are names of columns, with `n` in front where they hold numbers ("n:Lag").
/// `about` describes it, for screen readers.
pub(super) fn table(about: &str, heads: &[&str], rows: &str) -> String {
    let heads: String = heads
        .iter()
        .map(|head| match head.strip_prefix("n:") {
            Some(name) => format!("<th scope=\"col\" class=\"n\">{name}</th>"),
            None => format!("<th scope=\"col\">{head}</th>"),
        })
        .collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{about}\"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>",
        about = Text(about)
    )
}

/// A cell of such a table, with the name of its column for narrow screens.
pub(super) fn cell(column: &str, html: impl std::fmt::Display) -> String {
    match column.strip_prefix("n:") {
        Some(name) => format!("<td class=\"n\" data-label=\"{name}\">{html}</td>"),
        None => format!("<td data-label=\"{column}\">{html}</td>"),
    }
}
