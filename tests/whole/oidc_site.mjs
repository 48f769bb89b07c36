// A resource server of MCP with a certified authorization server: oidc-provider, from npm.
//
// node oidc_site.mjs FOLDER, where FOLDER has node_modules. Prints its address. Whoever opens a
// login page is logged in as the account of the last `POST /as/NAME`, and has consented.

import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

// Newer Nodes have it; the provider needs it.
URL.parse ??= (text) => { try { return new URL(text); } catch { return null; } };
const require = createRequire(path.join(process.argv[2], 'index.js'));
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const DOCUMENT = 'https://capd.example/client.json';
let account = 'nobody';
const registered = [];

const server = http.createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const base = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(base, {
  pkce: { required: () => true },
  scopes: ['openid', 'offline_access'],
  clientAuthMethods: ['none'],
  clientDefaults: { token_endpoint_auth_method: 'none' },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({ scope: '', accessTokenFormat: 'opaque', accessTokenTTL: 600 }),
    },
  },
  // The document that capd's user publishes: no network in tests.
  fetch: async (url) => new Response(JSON.stringify({
    client_id: DOCUMENT,
    client_name: 'capd',
    redirect_uris: ['http://127.0.0.1/callback'],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    application_type: 'native',
    token_endpoint_auth_method: 'none',
  }), { status: `${url}` === DOCUMENT ? 200 : 404, headers: { 'content-type': 'application/json' } }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  issueRefreshToken: () => true,
  async loadExistingGrant(ctx) {
    const { client, session, params } = ctx.oidc;
    const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope('openid offline_access');
    grant.addResourceScope(params?.resource ?? `${base}/mcp`, '');
    await grant.save();
    return grant;
  },
});
provider.on('registration_create.success', (_, client) => registered.push(client.clientId));

const answer = (response, status, body, headers = {}) => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(body));
};

async function mcp(request, response) {
  let text = '';
  for await (const chunk of request) text += chunk;
  const token = (request.headers.authorization ?? '').replace(/^Bearer /i, '');
  const found = token && await provider.AccessToken.find(token);
  if (!found || found.aud !== `${base}/mcp`) {
    const where = `${base}/.well-known/oauth-protected-resource/mcp`;
    answer(response, 401, {}, { 'www-authenticate': `Bearer resource_metadata="${where}"` });
    return;
  }
  if (request.method !== 'POST') { answer(response, 405, {}); return; }
  const { id, method } = JSON.parse(text);
  if (id === undefined) { response.writeHead(202).end(); return; }
  const said = { account: found.accountId, client: found.clientId };
  const results = {
    initialize: {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'oidc', version: '1' },
    },
    ping: {},
    'tools/list': { tools: [{ name: 'who', inputSchema: { type: 'object' } }] },
    'tools/call': { content: [{ type: 'text', text: JSON.stringify(said) }] },
  };
  const result = results[method];
  answer(response, 200, result
    ? { jsonrpc: '2.0', id, result }
    : { jsonrpc: '2.0', id, error: { code: -32601, message: 'no such method' } });
}

server.on('request', async (request, response) => {
  const { pathname } = new URL(request.url, base);
  if (pathname === '/mcp') {
    await mcp(request, response);
  } else if (pathname.startsWith('/as/')) {
    account = pathname.slice(4);
    answer(response, 200, { registered });
  } else if (pathname === '/.well-known/oauth-protected-resource/mcp') {
    answer(response, 200, { resource: `${base}/mcp`, authorization_servers: [base] });
  } else if (pathname.startsWith('/interaction/')) {
    const { prompt } = await provider.interactionDetails(request, response);
    const result = prompt.name === 'login' ? { login: { accountId: account } } : { consent: {} };
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  } else {
    provider.callback()(request, response);
  }
});
console.log(base);
