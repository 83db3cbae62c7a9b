/** Light or dark as TensorBoard is; the style sheet does the rest. */

import { follow } from "../../windows/static/theme.js";

follow();
