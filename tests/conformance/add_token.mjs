// The suite has no way to send a token. Node tells of each request before it goes out.
import diagnostics_channel from "node:diagnostics_channel";

const value = `Bearer ${process.env.CAPD_HTTP_TOKEN ?? ""}`;

if (process.env.CAPD_HTTP_TOKEN) {
  diagnostics_channel
    .channel("undici:request:create")
    .subscribe(({ request }) => request.addHeader("authorization", value));
  diagnostics_channel
    .channel("http.client.request.created")
    .subscribe(({ request }) => request.setHeader("authorization", value));
}
