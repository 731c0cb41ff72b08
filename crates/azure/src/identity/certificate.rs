//! The assertion by which an application shows that it holds a certificate's private key.
//!
//! Signed here: the identity library's own way links OpenSSL. Source: "Microsoft identity platform application authentication
//! certificate credentials" (claims, `PS256`, `x5t#S256`).

use std::path::Path;

use async_trait::async_trait;
use azure_core_v1::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use jiff::Timestamp;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::TokenError;
use evenkeel_model::settings::Application;
use evenkeel_storage::Rng;

/// How long an assertion is valid, before and after now: as much as clocks may be apart.
const VALID_SECONDS: i64 = 300;

/// A signed assertion.
#[derive(Debug)]
pub(super) struct Assertion(SecretString);

impl Assertion {
    /// Signs one with the key of a PEM file that holds the certificate too.
    pub(super) fn sign(
        application: &Application,
        file: &Path,
        authority: &str,
        now: Timestamp,
        rng: &dyn Rng,
    ) -> Result<Self, TokenError> {
        let unfit =
            |what: &str| TokenError::credential(&format!("the file {} {what}", file.display()));
        let unreadable = |_| {
            unfit("cannot be read, or lacks a certificate or an unencrypted private key in PEM")
        };
        let certificate = CertificateDer::from_pem_file(file).map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_file(file).map_err(unreadable)?;
        let signer = any_supported_type(&key)
            .ok()
            .and_then(|key| key.choose_scheme(&[SignatureScheme::RSA_PSS_SHA256]));
        let signer = signer.ok_or_else(|| unfit("has a private key that is not RSA"))?;
        let header = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": BASE64URL.encode(Sha256::digest(&certificate))});
        let claims = json!({
            "aud": format!("{authority}/{}/oauth2/v2.0/token", application.tenant),
            "iss": application.client,
            "sub": application.client,
            "jti": format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()),
            "nbf": now.as_second() - VALID_SECONDS,
            "exp": now.as_second() + VALID_SECONDS,
        });
        let encoded = |part: &Value| BASE64URL.encode(part.to_string());
        let signed = format!("{}.{}", encoded(&header), encoded(&claims));
        let signature = signer
            .sign(signed.as_bytes())
            .map_err(|_| unfit("has a private key that does not sign"))?;
        Ok(Self(SecretString::from(format!(
            "{signed}.{}",
            BASE64URL.encode(signature)
        ))))
    }
}

#[async_trait]
impl ClientAssertion for Assertion {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core_v1::Result<String> {
        Ok(self.0.expose_secret().to_owned())
    }
}
